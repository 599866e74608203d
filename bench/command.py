"""`psph bench`: run a benchmark, or all of them."""

from __future__ import annotations

import click

from psph import entry_points
from psph.machine import machine
from psph.output import print_json, print_table, progress

BENCHMARKS = "psph.benchmarks"


@click.command(short_help="Measure speed beside a reference.")
@click.argument("name", required=False)
@click.option("--list", "list_names", is_flag=True, help="List the benchmarks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def bench(name: str | None, list_names: bool, as_json: bool) -> None:
    """Run the benchmark NAME, or every benchmark when none is named.

    Ratios compare with a reference measured in the same run; above 1 we are ahead of it, or
    cheaper. Figures are this machine's own.
    """
    known = entry_points.names(BENCHMARKS)
    if list_names:
        _list(known, as_json)
        return
    results = [_run(each) for each in ([name] if name is not None else known)]
    if as_json:
        print_json(results[0] if name is not None else results)
        return
    for result in results:
        _show(result)


def _run(name: str) -> dict[str, object]:
    benchmark = entry_points.load(BENCHMARKS, name, "benchmark")
    with progress() as bar:
        bar.add_task(f"bench {name}", total=None)
        measured = benchmark()
    return {
        "bench": name,
        "ratios": measured["ratios"],
        "figures": measured["figures"],
        "machine": machine(),
        "notes": measured["notes"],
    }


def _show(result: dict[str, object]) -> None:
    rows = []
    for kind in ("ratios", "figures"):
        values = result[kind]
        assert isinstance(values, dict)
        rows += [[kind.removesuffix("s"), key, value] for key, value in values.items()]
    print_table(f"bench {result['bench']}", ["", "name", "value"], rows)
    notes = result["notes"]
    assert isinstance(notes, list)
    for note in notes:
        click.echo(f"  {note}")
    click.echo()


def _list(names: list[str], as_json: bool) -> None:
    rows = []
    for name in names:
        text = entry_points.load(BENCHMARKS, name, "benchmark").__doc__ or ""
        rows.append([name, text.strip().splitlines()[0] if text else ""])
    if as_json:
        print_json([{"bench": name, "summary": summary} for name, summary in rows])
    else:
        print_table("benchmarks", ["bench", "what it measures"], rows)
