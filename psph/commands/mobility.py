"""`psph mobility`: look at the mobility proxy of a running PSPH."""

from __future__ import annotations

import json
from typing import Any

import click

from psph.commands.remote import get, node_option
from psph.errors import PsphError
from psph.output import print_json, print_table


@click.group(short_help="Look at the mobility proxy of a running PSPH.")
def mobility() -> None:
    """Look at the mobility proxy of a running PSPH."""


@mobility.command(short_help="Clients that are here or away, what waits for them, counters.")
@node_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def status(node: str, as_json: bool) -> None:
    """Show how many clients are here and away, what waits for them, what was refused, the
    neighbour graph that was learned from hand-offs, and what is prepared for clients to come."""
    with get(node, "/mobility/status") as answer:
        try:
            document: dict[str, Any] = json.load(answer)
        except ValueError as error:
            raise PsphError(f"{node} has no mobility proxy: its answer is no JSON") from error
    if not isinstance(document, dict) or not {"proxy", "stays", "counters"} <= set(document):
        raise PsphError(f"{node} has no mobility proxy: its answer is not a proxy's status")
    if as_json:
        print_json(document)
        return
    click.echo(f"mobility proxy {document['proxy']}, {document['sessions']} clients connected")
    rows = [[f"stays {state}", count] for state, count in document["stays"].items()]
    rows += [
        [key.replace("_", " "), document[key]]
        for key in ("buffered_messages", "buffered_bytes", "dropped_messages")
    ]
    rows += [[key.replace("_", " "), count] for key, count in document["counters"].items() if count]
    print_table("", ["what", "count"], rows)
    if isinstance(document.get("prepare"), dict) and document["prepare"].get("on"):
        _show_prepared(document["prepare"])


def _show_prepared(prepared: dict[str, Any]) -> None:
    """The neighbour graph as this proxy knows it, what is kept for others, and what it cost."""
    neighbours = prepared["neighbours"]
    if not neighbours:
        click.echo("no neighbours yet: nobody came from another proxy or went to one")
    else:
        rows = [
            [each["proxy"], _ago(each["used_s"]), each["came"], each["went"],
             ", ".join(each["neighbours"]) or "-"]
            for each in neighbours
        ]  # fmt: skip
        header = ["neighbour", "last used", "came from there", "went there", "its neighbours"]
        print_table("neighbours", header, rows)
    counters, share = prepared["counters"], prepared["share"]
    counted = counters["prepared"] + counters["unprepared"]
    rows = [
        ["contexts passive", prepared["contexts"]["passive"]],
        ["contexts active", prepared["contexts"]["active"]],
        ["context bytes", prepared["context_bytes"]],
        ["topics buffered", prepared["topics"]["buffered"]],
        ["topics kept warm", prepared["topics"]["warm"]],
        ["own clients prepared elsewhere", prepared["prepared_clients"]],
        ["hand-offs prepared", "-" if share is None else f"{share:.0%} of {counted}"],
        ["under pressure", "yes: nothing is prepared" if prepared["pressed"] else "no"],
    ]
    rows += [[key.replace("_", " "), count] for key, count in counters.items() if count]
    print_table("prepared", ["what", "count"], rows)


def _ago(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"
