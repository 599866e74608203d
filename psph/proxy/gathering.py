"""Things that change one after the other and are said together."""

from __future__ import annotations

from collections.abc import Callable

from psirp_sim.runtime.environment import Environment, Timer


class Soon:
    """One thing to do. What comes without a pause does not put it off for ever: the earliest time
    that was asked for counts."""

    def __init__(self, env: Environment, do: Callable[[], None]) -> None:
        self._env = env
        self._do = do
        self._timer: Timer | None = None
        self._due = 0

    def within(self, delay: int) -> None:
        """Do it after so long, if not earlier."""
        due = self._env.now() + delay
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._timer, self._due = self._env.call_later(delay, self._now), due

    def _now(self) -> None:
        self._timer = None
        self._do()
