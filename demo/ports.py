"""Ports for all parts: free ones, kept in the data directory so that names stay what they are."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from psph.errors import PsphError

HOST = "127.0.0.1"
NAME = "ports.json"


def keep(directory: Path, names: Iterable[str]) -> dict[str, int]:
    """The port of each name: those of the last run in this directory, or free ones.

    A topic's name has its website's port in it, so a world that goes on needs the same ports.
    """
    path = directory / NAME
    names = sorted(names)
    if path.exists():
        kept = _read(path, names)
        for name, port in kept.items():
            _check_free(name, port, path)
        return kept
    chosen = dict(zip(names, _free(len(names)), strict=True))
    path.write_text(json.dumps(chosen, indent=2) + "\n")
    return chosen


def _read(path: Path, names: list[str]) -> dict[str, int]:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PsphError(f"{path} cannot be read ({error}): choose another --data") from None
    if not isinstance(kept, dict) or sorted(kept) != names:
        raise PsphError(f"{path} is of another version's world: choose another --data")
    return {name: int(port) for name, port in kept.items()}


def _check_free(name: str, port: int, path: Path) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                # As a server does: connections of the last run may not have been forgotten yet.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                raise PsphError(
                    f"port {port}, which {name} had in the last run, is in use: stop the other"
                    f" psph up, or remove {path}"
                ) from None


def _free(count: int) -> list[int]:
    """Free for TCP and for UDP: a name server has both. All are held until all are found."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            stream = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            packets = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            stream.bind((HOST, 0))
            with contextlib.suppress(OSError):
                packets.bind((HOST, stream.getsockname()[1]))
                found.append(stream.getsockname()[1])
        return found
