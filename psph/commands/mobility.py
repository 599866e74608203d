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
    """Show how many clients are here and away, what waits for them, and what was refused."""
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
