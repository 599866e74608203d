"""What is attempted again and again: steadily while it works, with backoff while it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from bootstrap.errors import BootstrapError
from bootstrap.registration.backoff import Backoff
from traces import LogEvent


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all parts of a registrar share."""

    clock: Callable[[], float]
    random: Callable[[], float]
    log: logging.Logger
    connections: asyncio.Semaphore
    """So that many zones do not ask one server all at once."""


class Repeated:
    """Runs an attempt, which returns the seconds until the next, for ever."""

    def __init__(
        self,
        what: str,
        attempt: Callable[[], Awaitable[float]],
        backoff: Backoff,
        around: Surroundings,
    ) -> None:
        """`what` is what cannot be done when it fails, for the log."""
        self._what = what
        self._attempt = attempt
        self._backoff = backoff
        self._around = around
        self._wake = asyncio.Event()
        self._stopping = False
        self._next: float | None = None
        self._success: float | None = None
        self.settled = asyncio.Event()
        """Set by the first outcome, good or bad."""
        self.trouble: str | None = None
        self.failures = 0

    @property
    def next_attempt_in(self) -> float:
        """Seconds; 0 while an attempt is under way."""
        return 0.0 if self._next is None else max(0.0, self._next - self._around.clock())

    @property
    def last_success_ago(self) -> float | None:
        return None if self._success is None else self._around.clock() - self._success

    def wake(self) -> None:
        """Attempt it now."""
        self._wake.set()

    def stop(self) -> None:
        """End `run` when the attempt that is under way has ended."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        while not self._stopping:
            # Before the attempt: whoever wakes us meanwhile wants another one.
            self._wake.clear()
            self._next = None
            pause = await self._once()
            self._next = self._around.clock() + pause
            self.settled.set()
            if self._stopping:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _once(self) -> float:
        log = self._around.log
        try:
            pause = await self._attempt()
        except BootstrapError as error:
            return self._failed(str(error))
        except Exception as error:
            # A fault of ours must not end the attempts. Only its kind is shown to others.
            log.exception(LogEvent("registrar.failed", what=self._what))
            return self._failed(f"a fault of the registrar: {type(error).__name__}")
        if self.failures:
            log.info(LogEvent("registrar.recovered", what=self._what, failures=self.failures))
        self.trouble, self.failures = None, 0
        self._success = self._around.clock()
        # Not always at the same time as the other PSPHs of the zone.
        return pause * (0.8 + 0.2 * self._around.random())

    def _failed(self, trouble: str) -> float:
        self.failures += 1
        self.trouble = trouble
        pause = self._backoff.delay(self.failures, self._around.random())
        self._around.log.warning(
            LogEvent("registrar.failed", what=self._what, reason=trouble, retry_s=round(pause, 1))
        )
        return pause
