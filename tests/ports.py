"""Ports for servers that must know their port before they bind it, or bind it again after a kill.

A test binds port 0 where it can, and holds the socket. A port that was free a moment ago is not
free now: `free_port` therefore reserves its ports for the life of this process, against every other
process that runs these tests.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import cycle
from pathlib import Path

# Below the range from which Linux chooses for port 0 and for outgoing connections: a port between
# two owners is not given to an unrelated socket, and a client that retries while nothing listens
# does not connect to itself.
_PORTS = range(20_000, 32_000)
_RESERVATIONS = Path(tempfile.gettempdir()) / f"psph-test-ports-{os.getuid()}"
_reserved: set[int] = set()


def _candidates() -> Iterator[int]:
    begin = os.getpid() * 101 % len(_PORTS)  # processes begin at different places
    return cycle([*_PORTS[begin:], *_PORTS[:begin]])


_ports = _candidates()


def free_port() -> int:
    """A TCP and UDP port of the loopback interface that no other test process is given."""
    return next(port for port in _ports if _reserve(port) and _is_free(port))


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def free_block(count: int) -> range:
    """Such ports in a row."""
    while (found := free_ports(count))[-1] - found[0] != count - 1:
        pass
    return range(found[0], found[-1] + 1)


@cache
def _reservations() -> int:
    """A file in which the byte at the number of a port is locked. The kernel releases the locks
    when this process ends; a child does not inherit them."""
    return os.open(_RESERVATIONS, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _reserve(port: int) -> bool:
    if port in _reserved:  # the lock of a process does not exclude the process itself
        return False
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _reserved.add(port)
    return True


def _is_free(port: int) -> bool:
    with ExitStack() as stack:
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                probe = stack.enter_context(socket.socket(socket.AF_INET, kind))
                if kind is socket.SOCK_STREAM:
                    # As servers do: connections in TIME_WAIT do not count.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
