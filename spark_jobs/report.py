"""A report: reads, computes, draws and writes, one step after the other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs import plots, writing_up
from spark_jobs.answers import TABLES, Answers, Span
from spark_jobs.clocks import Clocks
from spark_jobs.collected import Collected, Row, collect
from spark_jobs.correcting import estimate_clocks
from spark_jobs.departures import Departures, departures
from spark_jobs.errors import NoTraces
from spark_jobs.inventory import Inventory
from spark_jobs.latency import stage_shares
from spark_jobs.progress import Bar
from spark_jobs.reading import read_traces
from spark_jobs.slowest import stories

STEPS = len(TABLES) + 6
SMALL = 8 * 1024 * 1024
"""Bytes of traces, half a million events."""


@dataclass(frozen=True)
class Wish:
    """What is to be reported on."""

    traces: str
    since: datetime | None = None
    domain: str | None = None
    subscriber: str | None = None


@dataclass(frozen=True)
class Findings:
    """All that a report says."""

    wish: Wish
    files: Inventory
    clocks: Clocks
    span: Span
    overview: Collected
    tables: dict[str, Collected]
    stories: list[Row]
    departures: Departures | None


def make_report(spark: SparkSession, wish: Wish, out: Path, bar: Bar) -> Findings:
    """Write report.html, the pictures and the tables to the directory."""
    found = find(spark, wish, bar)
    bar.step("writing")
    out.mkdir(parents=True, exist_ok=True)
    for collected in (found.overview, *found.tables.values()):
        collected.write(out)
    rows = {name: collected.rows for name, collected in found.tables.items()}
    drawn = [
        plots.distribution(rows["latency"]),
        plots.series(rows["series"]),
        plots.shares(rows["shares"]),
        plots.trace_of(found.departures) if found.departures else None,
    ]
    pictures = {picture.name: picture for picture in drawn if picture is not None}
    for picture in pictures.values():
        (out / f"{picture.name}.png").write_bytes(picture.light)
    (out / "report.html").write_text(writing_up.document(found, pictures))
    return found


def find(spark: SparkSession, wish: Wish, bar: Bar) -> Findings:
    """Ask Spark for everything."""
    bar.step("reading")
    traces = read_traces(spark, wish.traces, wish.since, wish.domain)
    # Of few events, compiling the queries would take longer than running them.
    compiled = traces.files.bytes >= SMALL
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    bar.step("clocks")
    clocks = estimate_clocks(traces.events)
    answers = Answers(traces.events, clocks)
    bar.step("overview")
    overview = collect("overview", answers.overview())
    if not overview.rows:
        raise NoTraces(f"no event in {wish.traces} is of that time and domain: ask for more")
    span = Span(
        min(row["first_ns"] for row in overview.rows), max(row["last_ns"] for row in overview.rows)
    )
    tables: dict[str, Collected] = {}
    for table in answers.tables(span):
        bar.step(table.name.replace("_", " "))
        tables[table.name] = collect(table.name, table.rows)
    tables["latency"] = _with_uncertainty(tables["latency"], overview.rows, clocks)
    tables["shares"] = stage_shares(tables["latency"])
    tables["clocks"] = _clock_table(clocks)
    bar.step("stories")
    examples = [row["example"] for row in tables["slowest"].rows]
    told = collect("stories", stories(answers.corrected, examples)).rows if examples else []
    bar.step("departures")
    subscriber = wish.subscriber or _first_mover(tables["handoffs"].rows)
    one = departures(answers.corrected, subscriber) if subscriber else None
    if wish.subscriber and one is not None and not one.points.rows:
        raise NoTraces(f"nothing came to a subscriber {wish.subscriber!r}: see losses.json")
    answers.forget()
    return Findings(wish, traces.files, clocks, span, overview, tables, told, one)


def _first_mover(handoffs: list[Row]) -> str | None:
    return handoffs[0]["subscriber"] if handoffs else None


def _with_uncertainty(latency: Collected, overview: list[Row], clocks: Clocks) -> Collected:
    """How far the clocks of two domains may be apart beside what was corrected, at most."""
    domain_of = {row["node"]: row["domain"] for row in overview}
    domains = [domain_of.get(clock.node) for clock in clocks.clocks]
    worst: dict[tuple[str | None, str | None], int] = {}
    for one, row in zip(domains, clocks.uncertainties_ns, strict=True):
        for other, uncertainty in zip(domains, row, strict=True):
            if uncertainty is not None:
                worst[one, other] = max(worst.get((one, other), 0), uncertainty)
    column = [
        worst.get((row["from_domain"], row["to_domain"]), 0) / 1e6
        if row["stage"] in ("delivered", "total") and row["from_domain"] != row["to_domain"]
        else None
        for row in latency.rows
    ]
    place = latency.table.schema.get_field_index("histogram")
    table = latency.table.add_column(place, "uncertainty_ms", pa.array(column, pa.float64()))
    return Collected(latency.name, table, latency.cut)


def _clock_table(clocks: Clocks) -> Collected:
    rows = [
        {
            "node": clock.node,
            "reference": clock.reference,
            "offset_ms": clock.offsets_ns[0] / 1e6,
            "drift_ppm": clock.drift_ppm(clocks.step_ns),
            "uncertainty_ms": clock.uncertainty_ns / 1e6,
        }
        for clock in clocks.clocks
    ]
    names = ("offset_ms", "drift_ppm", "uncertainty_ms")
    fields = [pa.field(name, pa.string()) for name in ("node", "reference")]
    schema = pa.schema([*fields, *(pa.field(name, pa.float64()) for name in names)])
    return Collected("clocks", pa.Table.from_pylist(rows, schema), False)
