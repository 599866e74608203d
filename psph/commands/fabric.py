"""`psph fabric`: look at a running fabric, and change its rendezvous servers."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from psph.commands.remote import get, node_option, post, token_option
from psph.errors import PsphError
from psph.output import print_json, print_table


@click.group(short_help="Look at a running fabric, and change its rendezvous servers.")
def fabric() -> None:
    """Look at a running fabric, and change its rendezvous servers."""


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


@fabric.command(short_help="Drain a rendezvous server.")
@node_option
@token_option
def drain(node: str, token_file: Path) -> None:
    """Let a rendezvous server go: its clients move to the others, and it leaves the view.

    It stays up and can be stopped once `psph fabric status` shows no registrations.
    """
    with post(node, "/rendezvous/drain", token_file):
        click.echo(f"{node} is being drained")


@fabric.command(short_help="Take a drained rendezvous server back.")
@node_option
@token_option
def rejoin(node: str, token_file: Path) -> None:
    """Let a drained rendezvous server take part again."""
    with post(node, "/rendezvous/rejoin", token_file):
        click.echo(f"{node} joins again")


@fabric.command(short_help="Take a dead rendezvous server out of the view.")
@click.argument("server")
@node_option
@token_option
def remove(server: str, node: str, token_file: Path) -> None:
    """Take a rendezvous server that will not come back out of the view, asking another one.

    The servers of the view vote on writer leases, and a dead one counts until it is removed.
    """
    with post(node, f"/rendezvous/remove/{quote(server, safe='')}", token_file):
        click.echo(f"{server} is being removed")


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
    if status.get("rendezvous"):
        _show_rendezvous(status["rendezvous"])
    rows = [
        [where, name.replace("_", " "), count]
        for where in ("forwarding", "control", "socket")
        for name, count in status[where].items()
        if count
    ]
    print_table("\npackets", ["where", "what", "count"], rows)


def _show_rendezvous(status: dict[str, Any]) -> None:
    shards = status["shards"]
    rows = [
        ["servers", ", ".join(status["servers"])],
        [
            "scopes",
            f"{status['scopes']}: first home of {shards['first']}, second of "
            f"{shards['second']}, {shards['elsewhere']} of others",
        ],
        ["items", status["items"]],
        ["clients", status["clients"]],
        ["registrations", status["registrations"]],
        ["matches not taken yet", status["untold_matches"]],
        *(
            [f"view: {key.replace('_', ' ')}", _plain(value)]
            for key, value in status["view"].items()
        ),
        *([f"answered {code.replace('_', ' ')}", n] for code, n in status["requests"].items() if n),
    ]
    print_table("\nrendezvous server", ["what", "value"], rows)


def _plain(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
