"""The neighbours of one proxy: where clients come from and go to. Learned, never configured.

An edge is learned and refreshed when a client crosses it, at both ends: by the new proxy when the
old one proved to keep a stay of the client, or had prepared it here; by the old proxy when the new
one says so, with a pass. Of too many the one used longest ago goes, and so does one that was not
used for long. A restart knows them still; how they were used lately may be a little out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from mobility.ahead.settings import AheadSettings
from psirp_sim.runtime.environment import Environment

_NEIGHBOUR = b"mobility/ahead/neighbour/"


@dataclass(slots=True)
class Neighbour:
    """One of them."""

    name: str
    used: int
    """By the proxy's wall clock: when a client last came from there, or went there."""
    came: int = 0
    """Clients that came from there."""
    went: int = 0
    """Clients that went there."""
    neighbours: tuple[str, ...] = ()
    """Its own, as it last said."""
    written: int = 0
    """What is durable of `used`."""


class Neighbours:
    """By name, the one used longest ago first."""

    def __init__(
        self, env: Environment, settings: AheadSettings, lost: Callable[[str], None]
    ) -> None:
        """`lost`: called with the name of one that is none any more."""
        self.known: dict[str, Neighbour] = {}
        self._env = env
        self._most = settings.neighbours
        self._age = settings.age
        self._lost = lost

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.known)

    def restore(self) -> None:
        """Read back what was durable."""
        found = []
        for key, value in self._env.storage.scan(_NEIGHBOUR):
            used, came, went = msgspec.msgpack.decode(value, type=tuple[int, int, int])
            name = key[len(_NEIGHBOUR) :].decode()
            # A clock that ran back says nothing of how long ago it was.
            found.append(Neighbour(name, min(used, self._env.wall()), came, went, (), used))
        for neighbour in sorted(found, key=lambda each: each.used):
            self.known[neighbour.name] = neighbour
        self._bound()

    def crossed(self, name: str, *, came: bool) -> bool:
        """A client came from there, or went there; whether the neighbour is new."""
        neighbour = self.known.pop(name, None)
        new = neighbour is None
        if neighbour is None:
            neighbour = Neighbour(name, 0)
        self.known[name] = neighbour
        neighbour.used = self._env.wall()
        if came:
            neighbour.came += 1
        else:
            neighbour.went += 1
        # Not at each use: what a crash may cost is a small part of the age.
        if new or abs(neighbour.used - neighbour.written) > self._age // 10:
            self._write(neighbour)
        self._bound()
        return new

    def told(self, name: str, neighbours: tuple[str, ...]) -> None:
        """Who the neighbours of that one are."""
        if name in self.known:
            self.known[name].neighbours = neighbours

    def grow_old(self) -> None:
        """Let those go that were not used for long."""
        now = self._env.wall()
        for neighbour in list(self.known.values()):
            if neighbour.used > now:
                neighbour.used = now  # the clock was set back
            elif now - neighbour.used > self._age:
                self._forget(neighbour.name)

    def _bound(self) -> None:
        while len(self.known) > self._most:
            self._forget(next(iter(self.known)))

    def _forget(self, name: str) -> None:
        del self.known[name]
        self._env.storage.write({_NEIGHBOUR + name.encode(): None})
        self._lost(name)

    def _write(self, neighbour: Neighbour) -> None:
        neighbour.written = neighbour.used
        value = msgspec.msgpack.encode((neighbour.used, neighbour.came, neighbour.went))
        self._env.storage.write({_NEIGHBOUR + neighbour.name.encode(): value})
