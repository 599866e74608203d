"""Collecting what one proxy kept: asking again until it has nothing more that is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from mobility.memory import Debt
from mobility.messages import AnyAnswer, Batch, Code, Fetch, Item, Refused, State, Topics, Who
from mobility.settings import ClientSettings
from psirp_sim.runtime.environment import Environment, Timer


class Collects(Protocol):
    """What a collector needs of its client."""

    env: Environment
    settings: ClientSettings

    def fetch(self, question: Callable[[int], Fetch], answered: Callable[[AnyAnswer], None]) -> int:
        """Ask the proxy that the client is at."""

    def drop(self, call: int) -> None: ...

    @property
    def needs_buffers(self) -> bool:
        """Whether a proxy that had nothing more is to be asked again."""

    @property
    def who(self) -> Who:
        """Who asks."""

    def consumed_since(self, moment: int) -> Topics:
        """The Positions of the topics of which something was consumed from then on."""

    def collected(self, collector: Collector, items: Iterable[Item], batch: Batch) -> None:
        """Items came; whether they suffice is for the client to say."""


class Collector:
    """Of one debt, during one move-in."""

    def __init__(self, client: Collects, debt: Debt, stop: bool) -> None:
        self.debt = debt
        self.closed = False
        self.exhausted = False
        """Everything that the proxy has came here."""
        self.gone = False
        """The proxy keeps nothing for that stay."""
        self.prepared = False
        """The proxy had something for this stay before it began."""
        self.reason = ""
        """Why something may be missing."""
        self.bytes = 0
        self.heard_at = client.env.now()
        """When the proxy last answered, or the client came."""
        self.empty_at: int | None = None
        """When it was asked what it answered with all that it had; None while there is more."""
        self._asked_at = 0
        self._since = 0
        """When the request was sent that it last answered with all that it had."""
        self._client = client
        self._stop = stop
        self._life = 0
        self._after = 0
        self._call: int | None = None
        self._timer: Timer | None = None

    def ask(self) -> None:
        """Ask for what comes next."""
        self._timer = None
        if self.closed or self._call is not None:
            return

        def question(call: int) -> Fetch:
            return Fetch(
                **self._client.who,
                call=call,
                proxy=self.debt.proxy,
                stay=self.debt.stay,
                life=self._life,
                after=self._after,
                most=self._client.settings.batch,
                stop=self._stop,
                consumed=self._client.consumed_since(self._since),
            )

        self._asked_at = self._client.env.now()
        self._call = self._client.fetch(question, self._answered)

    def _look_again(self) -> None:
        """Ask once more, if a buffer is needed: of many clients that arrive at once each would
        otherwise ask many times before its live flow begins."""
        env, settings = self._client.env, self._client.settings
        if self._client.needs_buffers:
            self.ask()
        else:
            self.heard_at = env.now()  # it was not asked
            self._timer = env.call_later(settings.poll, self._look_again)

    def offered(self, batch: Batch) -> None:
        """The proxy has something before it was asked: it was prepared."""
        if self._call is None:
            self.closed = False
            self.prepared = True
            self._asked_at = self._client.env.now()
            self._answered(batch)

    def close(self, reason: str = "") -> None:
        """Nothing more of it is needed, or can be had."""
        self.closed = True
        self.reason = self.reason or reason
        if self._call is not None:
            self._client.drop(self._call)
            self._call = None
        if self._timer is not None:
            self._timer.cancel()

    def _answered(self, answer: AnyAnswer) -> None:
        self._call = None
        env, settings = self._client.env, self._client.settings
        if not isinstance(answer, Batch):
            if isinstance(answer, Refused) and answer.code is Code.FORBIDDEN:
                self.close("a proxy that may not be reached")
            else:
                self._timer = env.call_later(settings.retry_first, self.ask)
            self._client.collected(self, (), Batch(call=0, state=State.KEPT, more=True))
            return
        if answer.life != self._life:
            self._life, self._after = answer.life, 0
        self._after = max(self._after, answer.last)
        self.gone = answer.state is not State.KEPT
        if answer.state is State.EXPIRED:
            self.reason = "time to keep"
        elif answer.dropped:
            self.reason = "quota"
        self.heard_at = env.now()
        self.empty_at = None if answer.more else self._asked_at
        self.bytes += sum(len(item.body or b"") for item in answer.items)
        self.exhausted = not answer.more
        if self.exhausted:
            self._since = self._asked_at
        if answer.items and answer.more:
            self._timer = env.call_later(0, self.ask)
        elif not self.gone:
            self._timer = env.call_later(settings.poll, self._look_again)
        self._client.collected(self, answer.items, answer)
