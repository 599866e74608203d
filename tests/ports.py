"""Ports for what must know its port before it binds it, or bind it again after a kill.

Where a test can, it binds port 0 instead.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle

# Below the range from which systems choose for port 0 and for connections, so that nobody gets one
# of these by chance while it is between two owners; nor does a client that tries again and again,
# while nobody listens, connect to itself.
_FIRST = 20_000
_SHARES, _SHARE = 16, 750
"""Processes that run tests at the same time have different ones."""


def _mine() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _FIRST + worker % _SHARES * _SHARE
    begin = os.getpid() % _SHARE  # another run of the tests begins elsewhere
    return cycle([*range(first + begin, first + _SHARE), *range(first, first + begin)])


_ports = _mine()


def free_port() -> int:
    """One that nobody uses on the loopback interface, by TCP or by UDP; each is given once."""
    for port in _ports:
        with ExitStack() as stack:
            try:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    probe = stack.enter_context(socket.socket(socket.AF_INET, kind))
                    if kind is socket.SOCK_STREAM:
                        # As servers do: connections that ended lately do not count.
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("unreachable: the ports go round")


def free_ports(count: int) -> list[int]:
    """Several of them."""
    return [free_port() for _ in range(count)]
