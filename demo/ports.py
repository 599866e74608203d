"""Ports for all parts: free ones, kept in the data directory so that names stay what they are."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import SystemRandom

from psph.errors import PsphError

HOST = "127.0.0.1"
NAME = "ports.json"
RANGE = range(12_000, 20_000)


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
    if not is_free(port):
        raise PsphError(
            f"port {port}, which {name} had in the last run, is in use: stop the other psph up,"
            f" or remove {path}"
        )


def is_free(port: int) -> bool:
    """Whether nobody has it on loopback, by TCP or by UDP: a name server has both."""
    with ExitStack() as stack:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            probe = stack.enter_context(socket.socket(socket.AF_INET, kind))
            if kind is socket.SOCK_STREAM:
                # As servers do: connections of the last run may not have been forgotten yet.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                return False
    return True


def _free(count: int) -> list[int]:
    # Below the range that systems choose from for connections: nobody gets one of these by
    # chance while the part that has it is stopped.
    candidates = list(RANGE)
    SystemRandom().shuffle(candidates)
    found = list(islice(filter(is_free, candidates), count))
    if len(found) < count:
        raise PsphError(f"there are no {count} free ports from {RANGE[0]} to {RANGE[-1]}")
    return found
