"""`psph fabric`: look at a running fabric."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from psph.commands.remote import get, node_option
from psph.errors import PsphError
from psph.output import print_json, print_table


@click.group(short_help="Look at a running fabric.")
def fabric() -> None:
    """Look at a running fabric."""


@fabric.command(short_help="Neighbours, links, counters and drops of a node.")
@node_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def status(node: str, as_json: bool) -> None:
    """Show a node: its neighbours and links, its servers, its counters and drops by reason."""
    with get(node, "/fabric/status") as answer:
        try:
            document: dict[str, Any] = json.load(answer)
        except ValueError as error:
            raise PsphError(f"{node} is no fabric node: its answer is no JSON") from error
    if not isinstance(document, dict) or not {"node", "fabric", "links", "socket"} <= set(document):
        raise PsphError(f"{node} is no fabric node: its answer is not a node's status")
    if as_json:
        print_json(document)
    else:
        _show(document)


def _time(milliseconds: int) -> str:
    # A node's life is numbered by the time it began.
    return datetime.fromtimestamp(milliseconds / 1_000).isoformat(" ", "seconds")


def _show(status: dict[str, Any]) -> None:
    fabric = status["fabric"]
    standing = "active topology manager, " if status["active_manager"] else ""
    click.echo(
        f"node {status['node']} of {status['domain']} ({', '.join(status['roles'])}), "
        f"up since {_time(status['boot'])}, {standing}{status['driver']} driver\n"
        f"fabric of {fabric['nodes']} nodes and {fabric['links']} links, "
        f"{fabric['reachable']} nodes reachable; "
        f"topology manager: {status['manager'] or 'none yet'}"
    )
    columns = ["link", "up", "neighbour", "heard_s", "id_version"]
    print_table("\nlinks", columns, [[link[c] for c in columns] for link in status["links"]])
    servers = [[name, ", ".join(roles)] for name, roles in status["servers"].items()]
    print_table("\nservers", ["server", "roles"], servers)
    rows = [
        [where, name.replace("_", " "), count]
        for where in ("forwarding", "control", "socket")
        for name, count in status[where].items()
        if count
    ]
    print_table("\npackets", ["where", "what", "count"], rows)
