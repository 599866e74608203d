"""The source's neighbour graph, as one broker sees it: learned, aged out, of bounded degree."""

from __future__ import annotations

from psirp_sim.runtime.environment import Environment


class Neighbours:
    """Names, the least recently used first."""

    def __init__(self, env: Environment, age: int, degree: int) -> None:
        self._env = env
        self._age = age
        self._degree = degree
        self._used: dict[str, int] = {}

    def learn(self, name: str) -> None:
        """A subscriber came from there, or went there."""
        self._used.pop(name, None)
        self._used[name] = self._env.now()
        while len(self._used) > self._degree:
            del self._used[next(iter(self._used))]

    @property
    def names(self) -> tuple[str, ...]:
        """Those that were used not too long ago."""
        since = self._env.now() - self._age
        self._used = {name: used for name, used in self._used.items() if used >= since}
        return tuple(self._used)
