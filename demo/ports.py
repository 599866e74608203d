"""Ports for all parts: free ones, kept in the data directory so that names stay what they are.

Two worlds that start at the same time, or one that starts while a part of the other is stopped,
would both find a port free. A world therefore takes a whole block of ports, and holds the first
port of the block, its guard, for as long as it runs: binding it succeeds for one world only.
"""

from __future__ import annotations

import atexit
import json
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from psph.errors import PsphError

HOST = "127.0.0.1"
NAME = "ports.json"
# Below the range that systems choose from for connections: no unrelated socket gets one of these
# while the part that has it is stopped.
RANGE = range(12_000, 20_000)
_BLOCK = 40


@dataclass(frozen=True, slots=True)
class Reservation:
    """The port of each name, until it is closed."""

    ports: dict[str, int]
    _guard: socket.socket

    def close(self) -> None:
        self._guard.close()


_held = ExitStack()
"""What `free_ports` has reserved."""
atexit.register(_held.close)


def reserve(directory: Path, names: Iterable[str]) -> Reservation:
    """Reserve the ports of the last run in this directory, or free ones.

    A topic's name has its website's port in it, so a world that continues needs the same ports.
    """
    path = directory / NAME
    names = sorted(names)
    if path.exists():
        ports = _read(path, names)
        guard = _bind(_block(min(ports.values())))
        taken = [name for name in names if guard is None or not is_free(ports[name])]
        if guard is not None and not taken:
            return Reservation(ports, guard)
        if guard is not None:
            guard.close()
        raise PsphError(
            f"port {ports[taken[0]]}, which {taken[0]} had in the last run, is in use: stop the"
            f" other psph up, or remove {path}"
        )
    reservation = _reserve_free(names)
    path.write_text(json.dumps(reservation.ports, indent=2) + "\n")
    return reservation


def _read(path: Path, names: list[str]) -> dict[str, int]:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PsphError(f"{path} cannot be read ({error}): choose another --data") from None
    if not isinstance(kept, dict) or sorted(kept) != names:
        raise PsphError(f"{path} is of another version's world: choose another --data")
    return {name: int(port) for name, port in kept.items()}


def _reserve_free(names: list[str]) -> Reservation:
    blocks = list(RANGE[::_BLOCK])
    SystemRandom().shuffle(blocks)
    for block in blocks:
        if guard := _bind(block):
            free = list(filter(is_free, RANGE[block + 1 - RANGE.start :][: _BLOCK - 1]))
            if len(free) >= len(names):
                return Reservation(dict(zip(names, free, strict=False)), guard)
            guard.close()
    raise PsphError(f"there are no {len(names)} free ports from {RANGE[0]} to {RANGE[-1]}")


def _block(port: int) -> int:
    """The guard of the block that a port is in."""
    return port - (port - RANGE.start) % _BLOCK


def _bind(port: int) -> socket.socket | None:
    guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        guard.bind((HOST, port))
        guard.listen(1)
    except OSError:
        guard.close()
        return None
    return guard


def free_ports(count: int) -> list[int]:
    """Ports for processes that must know them before they run. Their block is held for the life of
    this process, so that no other process is given one of them in between."""
    reservation = _reserve_free([str(number) for number in range(count)])
    _held.callback(reservation.close)
    return list(reservation.ports.values())


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
