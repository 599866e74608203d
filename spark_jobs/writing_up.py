"""What the page says, in which order and in which words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spark_jobs.collected import Row
from spark_jobs.inventory import NAMED
from spark_jobs.page import details, page, paragraph, picture, section, table, table_of
from spark_jobs.plots import Picture
from spark_jobs.slowest import LONGEST_STORY

if TYPE_CHECKING:
    from spark_jobs.report import Findings

_LATENCY = (
    "from_domain", "to_domain", "stage", "count", "p50_ms", "p90_ms", "p99_ms", "p999_ms",
    "max_ms", "uncertainty_ms",
)  # fmt: skip
_CLOCKS = ("node", "reference", "offset_ms", "drift_ppm", "uncertainty_ms")
_ASYMMETRY = (
    "Offsets are what has to be taken from a node's clock to get that of its reference. The"
    " uncertainty is half the least round trip, and 0.1 ms for what jitter leaves. It is mostly"
    " what cannot be known: a path that always takes longer one way than the other looks the same"
    " as a clock that is off by half the difference."
)


def document(found: Findings, pictures: Mapping[str, Picture]) -> str:
    """The page."""
    return page("What crossing domains costs", filter(None, _sections(found, pictures)))


def _sections(found: Findings, pictures: Mapping[str, Picture]) -> Iterator[str]:
    tables = found.tables
    yield _summary(found)
    yield section(
        "Latency",
        paragraph(
            "A stage is the time since the stage before it; total is from the ping to the"
            " subscriber. Latencies across domains are corrected by the clocks below and are known"
            " to within the uncertainty."
        ),
        picture(pictures.get("latency")),
        table_of(tables["latency"], _LATENCY),
    )
    yield section("Over time", picture(pictures.get("series")))
    yield section(
        "Where the time goes",
        picture(pictures.get("shares")),
        table_of(tables["shares"], ("from_domain", "to_domain", "stage", "mean_ms", "share")),
    )
    yield section("Slowest topics", *_slowest(found))
    yield section(
        "Losses",
        paragraph(
            "Owed is what entered while a subscriber was subscribed, but for the last 10 s. Late"
            " came after a higher version; doubled came more than once."
        ),
        table_of(
            tables["losses"],
            ("topic", "subscriber", "owed", "delivered", "lost", "doubled", "late"),
        ),
        table_of(tables["topics"], ("topic", "updates", "to_nobody"), 10),
    )
    yield section(
        "Fan-out",
        table_of(
            tables["fan_out"],
            ("topic", "updates", "mean_subscribers", "most_subscribers", "mean_nodes",
             "mean_domains"),
            20,
        ),
    )  # fmt: skip
    yield section(
        "Hand-offs",
        picture(pictures.get("departures")),
        table_of(
            tables["handoffs"],
            ("subscriber", "from_node", "to_node", "away_ms", "duration_ms", "buffered", "bytes",
             "lost", "doubled", "reason"),
        ),
    )  # fmt: skip
    yield section("Clocks", paragraph(_ASYMMETRY), table_of(tables["clocks"], _CLOCKS))
    yield section("Files", *_files(found))
    yield section(
        "Events", table_of(found.overview, ("domain", "node", "stage", "events"), most=100)
    )


def _summary(found: Findings) -> str:
    rows = found.overview.rows
    total = sum(row["events"] for row in rows)
    nodes, domains = ({row[name] for row in rows} for name in ("node", "domain"))
    only = f" Only of {found.wish.domain}." if found.wish.domain else ""
    components = len({clock.reference for clock in found.clocks.clocks})
    apart = (
        f" Probes connect them to {components} groups; between two groups nothing can be timed."
        if components > 1
        else ""
    )
    lost = sum(row["lost"] for row in found.tables["losses"].rows)
    owed = sum(row["owed"] for row in found.tables["losses"].rows)
    doubled = sum(row["doubled"] for row in found.tables["losses"].rows)
    return paragraph(
        f"{total:,} events of {len(nodes)} nodes in {len(domains)} domains,"
        f" {_moment(found.span.first_ns)} to {_moment(found.span.last_ns)}.{only}{apart}"
        f" Of {owed:,} deliveries that were owed {lost:,} are missing, {doubled:,} came too often."
    )


def _slowest(found: Findings) -> Iterator[str]:
    slowest = found.tables["slowest"]
    yield table_of(slowest, ("topic", "count", "p50_ms", "p99_ms", "max_ms", "example"))
    for row in slowest.rows:
        story = [event for event in found.stories if event["trace_id"] == row["example"]]
        if story:
            yield details(
                f"the slowest update of {row['topic']}: {row['max_ms']:,.1f} ms",
                table(
                    _told(story), ("after_ms", "stage", "node", "domain", "subscriber", "reason")
                ),
            )


def _told(story: list[Row]) -> list[Row]:
    start = story[0]["at_ns"]
    return [
        {**event, "after_ms": (event["at_ns"] - start) / 1e6} for event in story[:LONGEST_STORY]
    ]


def _files(found: Findings) -> Iterator[str]:
    files = found.files
    yield paragraph(
        f"{files.files:,} files of {files.bytes:,} bytes were found. {files.unreadable:,} could not"
        f" be read and {files.copies:,} were copies of others: both are left out."
        f" {files.missing:,} are missing by the numbers of those around them."
    )
    if files.left_out:
        rows: list[Row] = [{"file": file.path, "why": file.why} for file in files.left_out]
        more = files.unreadable + files.copies > NAMED
        yield details(
            f"left out{f', the first {NAMED}' if more else ''}", table(rows, ("why", "file"))
        )


def _moment(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
