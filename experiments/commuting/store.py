"""The queue of a broker: copies of messages for its subscribers, so many bytes of them.

The source does not say whose a queue is. Here all subscribers of a broker share one, which is what
its explanation of the losses takes ("overflowing the brokers' buffers"): what is kept for one
subscriber overwrites what is kept for another. `shared=False` gives each subscriber its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Copy:
    """Of one message, for one subscriber."""

    owner: Holder
    id: int
    body: bytes
    at: int
    """When it was stored, by the broker's clock."""


@dataclass(slots=True, eq=False)
class Holder:
    """A subscriber with copies in a store."""

    name: str
    copies: dict[int, Copy] = field(default_factory=dict)
    """By message id, in the order of the ids."""
    bytes: int = 0


class Store:
    """When it is full the oldest copy goes."""

    def __init__(self, capacity: int, shared: bool = True) -> None:
        self._capacity = capacity
        self._shared = shared
        self._copies: dict[Copy, None] = {}
        self.bytes = 0
        self.overwritten = 0

    def add(self, holder: Holder, id: int, body: bytes, at: int) -> None:
        copy = Copy(holder, id, body, at)
        self._copies[copy] = None
        holder.copies[id] = copy
        holder.bytes += len(body)
        self.bytes += len(body)
        while (holder.bytes if not self._shared else self.bytes) > self._capacity:
            oldest = next(iter(self._copies if self._shared else holder.copies.values()))
            self.overwritten += 1
            self.remove(oldest)

    def remove(self, copy: Copy) -> None:
        if self._copies.pop(copy, copy) is None:
            del copy.owner.copies[copy.id]
            copy.owner.bytes -= len(copy.body)
            self.bytes -= len(copy.body)

    def purge(self, holder: Holder) -> int:
        """Everything of one subscriber goes; so many bytes it was."""
        purged = holder.bytes
        for copy in list(holder.copies.values()):
            self.remove(copy)
        return purged

    def expire(self, before: int) -> None:
        """What was stored before that time goes."""
        for copy in list(self._copies):
            if copy.at >= before:
                return
            self.remove(copy)
