"""Passes: how a proxy knows who speaks to it, without keys that somebody would have to configure.

The pass that A gives to B is a keyed hash of B's name, under a key that only A has, so A keeps no
list. It is said to the *name* B, never to where a greeting came from: who shows it is reached under
that name. B believes a pass only if it comes with the challenge of a greeting of its own.
"""

from __future__ import annotations

from hmac import compare_digest

from blake3 import blake3

from mobility.ahead.words import PASS_BYTES
from psirp_sim.runtime.environment import Environment

_KEY_BYTES = 32


class Passes:
    """Those that a proxy gives, and those that it was given. None of them is durable: what is
    wrong is asked for again."""

    def __init__(self, env: Environment, key: bytes) -> None:
        self._env = env
        self._key = key or env.random.randbytes(_KEY_BYTES)
        self._given: dict[str, bytes] = {}
        self._challenges: dict[str, bytes] = {}

    def give(self, name: str) -> bytes:
        """What the proxy of that name has to show here."""
        return blake3(name.encode(), key=self._key).digest(PASS_BYTES)

    def admits(self, name: str, token: bytes) -> bool:
        """Whether that is its pass."""
        return compare_digest(self.give(name), token)

    def of(self, name: str) -> bytes | None:
        """What to show to that proxy, if it is known."""
        return self._given.get(name)

    def challenge(self, name: str) -> bytes:
        """To greet that proxy with; the same one until it is answered."""
        found = self._challenges.get(name)
        if found is None:
            found = self._challenges[name] = self._env.random.randbytes(PASS_BYTES)
        return found

    def take(self, name: str, challenge: bytes, token: bytes) -> bool:
        """A proxy's pass came; whether it was asked for."""
        expected = self._challenges.get(name)
        if expected is None or not compare_digest(expected, challenge):
            return False
        del self._challenges[name]
        self._given[name] = token
        return True

    def forget(self, name: str) -> None:
        """It is wrong, or not needed any more."""
        self._given.pop(name, None)
        self._challenges.pop(name, None)
