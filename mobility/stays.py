"""The stays that a proxy keeps, and what time does to them.

A handler that is not heard of any more goes away, one that is away too long expires, and one that
nobody asked for is forgotten. All of it is counted by this proxy's own clock.
"""

from __future__ import annotations

from collections.abc import Callable

from mobility.handler import Handler, Record, stored
from mobility.port import PubSub
from mobility.settings import ProxySettings
from mobility.tracing import Tracing
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment

Stay = tuple[str, int]
"""Client id and epoch."""


class Stays:
    """Of one proxy."""

    def __init__(
        self,
        env: Environment,
        pubsub: PubSub,
        settings: ProxySettings,
        counters: dict[str, int],
        effective: Callable[[Handler], None],
    ) -> None:
        """`effective`: called when every subscription of a handler is."""
        self.handlers: dict[Stay, Handler] = {}
        self.tracing = Tracing(env, settings.domain)
        self._env = env
        self._pubsub = pubsub
        self._settings = settings
        self._counters = counters
        self._effective = effective
        self.changed: Callable[[Handler], None] = lambda handler: None
        """Called when the state of a handler is another one, or it is forgotten."""
        self._epochs: dict[str, set[int]] = {}
        """Of each client: its stays that are kept."""

    def restore(self) -> None:
        """Go on with what was durable."""
        for record in stored(self._env):
            handler = self.add(record)
            handler.restore()
            if record.state == "here":
                self.watch(handler)
                handler.stand_by()
            elif record.state == "away":
                # Only this proxy's own clock is asked; if it ran back, the time begins anew.
                gone = self._env.wall() - record.since
                keep = int(record.service.keep * SECOND)
                self._after(handler, keep - gone if gone >= 0 else keep, self._expire)
                handler.take_over()
            else:
                self._after(handler, self._settings.remember, self.forget)

    def add(self, record: Record) -> Handler:
        """A client came."""
        handler = Handler(self._env, self._pubsub, record)
        self.handlers[record.client, record.epoch] = handler
        self._epochs.setdefault(record.client, set()).add(record.epoch)
        handler.on_effective = lambda: self._effective(handler)
        return handler

    def of(self, client: str) -> list[Handler]:
        """Every stay of that client, the earliest first."""
        return [self.handlers[client, epoch] for epoch in sorted(self._epochs.get(client, ()))]

    def have_room(self, client: str, topics: int) -> bool:
        """Whether one more may come, with so many topics."""
        return (
            len(self.handlers) < self._settings.handlers
            and len(self._epochs.get(client, ())) < self._settings.handlers_per_client
            and topics <= self._settings.topics
        )

    def knows(self, handler: Handler) -> bool:
        """Whether it has not been forgotten, or replaced."""
        return self.handlers.get((handler.record.client, handler.record.epoch)) is handler

    # What becomes of one

    def come_back(self, handler: Handler) -> None:
        """A sign of life, perhaps of a client that was taken for vanished."""
        if handler.state != "here":
            handler.become("here")
            handler.stand_by()
            handler.save()
            self.changed(handler)
        self.watch(handler)

    def watch(self, handler: Handler) -> None:
        """Wait for the next sign of life, and not for ever."""
        silence = int(handler.record.alive * SECOND) * self._settings.silence
        self._after(handler, silence, self.vanish)

    def vanish(self, handler: Handler) -> None:
        """The client went without a word."""
        self._counters["vanished"] += 1
        self.go_away(handler, "vanished")
        handler.save()

    def go_away(self, handler: Handler, reason: str | None) -> None:
        """The client is not here any more; `reason` when it did not ask for it."""
        if handler.state != "here":
            return
        handler.become("away", self._env.wall())
        handler.take_over()
        client = handler.record.client
        if handler.trace_id:
            self.tracing.move_in_end(client, handler.trace_id, 0, "", "moved on before it was over")
            handler.trace_id = ""
        self.tracing.move_out(client, reason)
        self._after(handler, int(handler.record.service.keep * SECOND), self._expire)
        self.changed(handler)

    def _expire(self, handler: Handler) -> None:
        self._counters["expired"] += 1
        handler.expire()
        handler.become("expired", self._env.wall())
        handler.save()
        self._after(handler, self._settings.remember, self.forget)
        self.changed(handler)

    def forget(self, handler: Handler) -> None:
        """It is over."""
        if self.knows(handler):
            client, epoch = handler.record.client, handler.record.epoch
            del self.handlers[client, epoch]
            epochs = self._epochs[client]
            epochs.discard(epoch)
            if not epochs:
                del self._epochs[client]
        handler.erase()
        self.changed(handler)

    def _after(self, handler: Handler, delay: int, then: Callable[[Handler], None]) -> None:
        if handler.timer is not None:
            handler.timer.cancel()
        handler.timer = self._env.call_later(delay, then, handler)
