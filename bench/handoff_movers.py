"""What clients that move have in common, in `handoff` and in tests: they come, go and count alike.

Numbers, in the order they came; and when a move was over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

PATIENCE = 60.0
"""Seconds after which something is not waited for any more."""


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens on this loop; everybody waits alike."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("a client of the benchmark waits in vain")
        await asyncio.sleep(0.01)


class Mover(Protocol):
    """A client that moves. `come` and `go` begin it."""

    arrivals: Arrivals

    @property
    def live(self) -> bool: ...

    @property
    def gone(self) -> bool: ...

    async def come(self, place: str) -> None: ...

    async def go(self) -> None: ...


async def arrive(movers: Iterable[Mover], place: str) -> None:
    """All at once; until the last is live."""
    moving = list(movers)
    await asyncio.gather(*(each.come(place) for each in moving))
    await until(lambda: all(each.live for each in moving))


async def leave(movers: Iterable[Mover]) -> None:
    """All at once, each properly."""
    moving = list(movers)
    await asyncio.gather(*(each.go() for each in moving))
    await until(lambda: all(each.gone for each in moving))


class Arrivals:
    """What came to one client."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.other: list[object] = []
        """Whatever is no message: gaps."""
        self.moved_at = self.first_at = self.live_at = 0.0
        self.caught_up_at = 0.0
        """When the first came that was published after the last move began."""

    def begin(self) -> None:
        """The client is about to move in."""
        self.moved_at = time.monotonic()
        self.first_at = self.live_at = self.caught_up_at = 0.0

    def take(self, body: bytes) -> None:
        number, sent, _ = body.split(b" ")
        self.numbers.append(int(number))
        if not self.first_at:
            self.first_at = time.monotonic()
        if not self.caught_up_at and float(sent) >= self.moved_at:
            self.caught_up_at = time.monotonic()

    def lost(self, upto: int) -> int:
        """Of those from the first that came up to that number."""
        if not self.numbers:
            return upto
        return len(set(range(min(self.numbers), upto + 1)) - set(self.numbers))

    @property
    def doubled(self) -> int:
        return len(self.numbers) - len(set(self.numbers))


def body(number: int) -> bytes:
    """Of message `number`, 100 bytes: its number and when it was sent."""
    return f"{number} {time.monotonic():.6f} ".encode().ljust(100, b".")


async def _nothing() -> list[str]:
    return []


@dataclass
class Side:
    """One of those that are compared."""

    places: tuple[str, str]
    publish: Callable[[str, int], Awaitable[None]]
    movers: Callable[[AsyncExitStack, str, int], Awaitable[Sequence[Mover]]]
    topic: str
    most: int = 1_000
    remarks: Callable[[], Awaitable[list[str]]] = _nothing
    """What is to be said about it when all is over."""
