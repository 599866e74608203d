"""`psph config`: check a configuration file and show what it means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from psph import configuration
from psph.output import print_json, print_table


@click.command(short_help="Check a configuration file and show what it means.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def config(file: Path, as_json: bool) -> None:
    """Check a node's configuration FILE and show every setting, defaults filled in."""
    loaded = configuration.load(file, configuration.NodeConfiguration)
    settings = _masked(msgspec.to_builtins(loaded))
    if as_json:
        print_json(settings)
    else:
        print_table(f"{file} is valid", ["key", "value"], _flat(settings, ""))


def _masked(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what must not end up in a terminal's history."""
    fabric = settings["fabric"]
    if fabric is not None:
        fabric |= {"keys": ["..."] * len(fabric["keys"]), "link_seed": "..."}
    for key in (settings["dns"] or {}).get("key", ()):
        key["secret"] = "..."
    for publisher in settings["hub"]["publisher"]:
        publisher["token"] = "..."
    bootstrap = settings["bootstrap"]
    if bootstrap is not None and bootstrap["tsig"] is not None:
        bootstrap["tsig"] |= {"secret": "..."}
    return settings


def _flat(settings: dict[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        match value:
            case dict():
                yield from _flat(value, f"{prefix}{key}.")
            case [dict(), *_]:
                for index, table in enumerate(value):
                    yield from _flat(table, f"{prefix}{key}[{index}].")
            case list():
                yield prefix + key, ", ".join(map(str, value)) or None
            case _:
                yield prefix + key, value
