"""Pictures say what they show: names, order, units, and lines that can be told apart."""

from __future__ import annotations

import pytest

from experiments.experiment import Plot
from experiments.plots import figure_of, label
from psph import entry_points

pytest.importorskip("matplotlib")

PLOTS = [
    pytest.param(plot, id=f"{name}-{plot.name}")
    for name in entry_points.names("psph.experiments")
    for plot in entry_points.load("psph.experiments", name, "experiment").plots
]


def axes_of(plot, rows):
    (axes,) = figure_of(plot, "test", rows).axes
    return axes


def lines_of(axes):
    """Without the error bars."""
    return [container.lines[0] for container in axes.containers]


def names_at(axes):
    return [each.get_text() for each in axes.get_xticklabels()]


@pytest.mark.parametrize("log_x", [False, True])
def test_text_keeps_its_names_and_the_order_of_the_rows(log_x):
    cities = ["Oslo", "Athens", "Zürich", "Bern", "Lima"]
    rows = [{"city": city, "wait_ms": at + 1} for at, city in enumerate(cities)]
    axes = axes_of(Plot("cities", x="city", y="wait_ms", log_x=log_x, log_y=True), rows)
    assert names_at(axes) == cities
    assert list(axes.get_xticks()) == [0, 1, 2, 3, 4]
    (line,) = lines_of(axes)
    assert list(line.get_xdata()) == [0, 1, 2, 3, 4]
    assert list(line.get_ydata()) == [1, 2, 3, 4, 5]
    assert axes.get_yscale() == "log"


def test_a_name_has_one_place_in_all_lines():
    rows = [
        {"city": "Oslo", "wait_ms": 1, "way": "a"},
        {"city": "Bern", "wait_ms": 2, "way": "b"},
        {"city": "Athens", "wait_ms": 3, "way": "a"},
        {"city": "Oslo", "wait_ms": 4, "way": "b"},
    ]
    axes = axes_of(Plot("cities", x="city", y="wait_ms", series="way"), rows)
    assert names_at(axes) == ["Oslo", "Bern", "Athens"]
    a, b = lines_of(axes)
    assert (list(a.get_xdata()), list(a.get_ydata())) == ([0, 2], [1, 3])
    assert (list(b.get_xdata()), list(b.get_ydata())) == ([0, 1], [4, 2])


def test_numbers_are_sorted_and_scaled():
    rows = [{"s": s, "wait_ms": s} for s in (100, 1, 10)]
    axes = axes_of(Plot("sizes", x="s", y="wait_ms", log_x=True), rows)
    (line,) = lines_of(axes)
    assert list(line.get_xdata()) == [1, 10, 100]
    assert axes.get_xscale() == "log"


def test_twelve_lines_can_be_told_apart():
    rows = [{"x": x, "wait_ms": x, "way": f"way {n}"} for n in range(12) for x in (1, 2)]
    plot = Plot("ways", x="x", y="wait_ms", series="way", labels={"way": "the way"})
    figure = figure_of(plot, "test", rows)
    (axes,) = figure.axes
    styles = {(each.get_color(), each.get_linestyle()) for each in lines_of(axes)}
    assert len(styles) == 12
    # So many would hide lines: they are named beside them.
    (legend,) = figure.legends
    assert axes.get_legend() is None
    assert [each.get_text() for each in legend.get_texts()] == [f"way {n}" for n in range(12)]
    assert legend.get_title().get_text() == "the way"


def test_a_short_legend_stands_in_the_axes():
    rows = [{"x": 1, "wait_ms": 1, "way": way} for way in "ab"]
    axes = axes_of(Plot("ways", x="x", y="wait_ms", series="way"), rows)
    assert [each.get_text() for each in axes.get_legend().get_texts()] == ["a", "b"]


def test_without_rows_there_is_an_empty_picture():
    axes = axes_of(Plot("nothing", x="x", y="wait_ms", series="way"), [{"x": 1, "wait_ms": None}])
    assert axes.get_ylabel() == "wait (ms)"


def test_the_unit_is_read_off_a_name():
    plot = Plot("p", x="memory_kib", y="loss_pct", labels={"s": "subscriptions (number)"})
    assert label(plot, "memory_kib") == "memory (KiB)"
    assert label(plot, "loss_pct") == "loss (%)"
    assert label(plot, "s") == "subscriptions (number)"
    assert label(plot, "some_text") == "some text"


@pytest.mark.parametrize("plot", PLOTS)
def test_every_axis_of_every_experiment_has_a_unit(plot):
    axes = axes_of(plot, [{**plot.where, plot.x: 1, plot.y: 1, plot.series or "-": "a"}])
    for said in (axes.get_xlabel(), axes.get_ylabel()):
        assert said.endswith(")"), f"{said!r} does not say its unit: give the plot a label"
        assert "(" in said
