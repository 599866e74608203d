"""What a client says to the proxy it is at: that it came, is there, and wants to go.

All of it concerns one stay at a time; `begin` starts the next. A proxy that does not know the
client any more (it lost its disk, or gave the client up) is told again that it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mobility.calls import Calls
from mobility.memory import Debt
from mobility.merging import Flow
from mobility.messages import (
    Alive,
    AnyAnswer,
    Arrived,
    Batch,
    Code,
    Gone,
    MovedOut,
    MoveIn,
    MoveOut,
    Refused,
    Release,
    Released,
    Topics,
    Welcome,
    Who,
    write_places,
)
from mobility.settings import ClientSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer


class Attendance:
    """Of one client, at one proxy after the other."""

    def __init__(
        self,
        env: Environment,
        calls: Calls,
        settings: ClientSettings,
        flows: Mapping[str, Flow],
        welcomed: Callable[[Batch | None], None],
    ) -> None:
        self.welcomed = False
        """The proxy has taken over: it would notice if the client vanished."""
        self._env = env
        self._calls = calls
        self._settings = settings
        self._flows = flows
        self._on_welcomed = welcomed
        self._proxy = ""
        self._who: Who = {"secret": b"", "epoch": 0, "nonce": 0}
        self._there = False
        self._left: Callable[[], None] | None = None
        self._report = False
        self._dirty: dict[str, None] = {}
        """Topics of which the proxy does not know how far they have come."""
        self._gone: dict[str, int] = {}
        """Topics of which the proxy does not know that their subscription is over, and the call
        that said so first; 0 until one has."""
        self._told: Topics = {}
        """What the move-in said."""
        self._leave_call: int | None = None
        self._alive_call: int | None = None
        self._alive_timer: Timer | None = None
        self._releasing: set[Debt] = set()

    def begin(self, proxy: str, who: Who) -> None:
        """The client came to that proxy."""
        self._proxy, self._who = proxy, who
        self._there = True
        self._ask_to_stay()

    def end(self) -> None:
        """It is not there any more. The calls are dropped by whoever made them."""
        self.welcomed = self._report = self._there = False
        self._left = None
        self._leave_call = self._alive_call = None
        self._releasing.clear()
        if self._alive_timer is not None:
            self._alive_timer.cancel()
            self._alive_timer = None

    # Coming

    def _ask_to_stay(self) -> None:
        self._dirty.clear()
        self._gone.clear()

        self._told = self._places(self._flows)
        since = {topic: flow.since for topic, flow in self._flows.items() if flow.since > 1}

        def question(call: int) -> MoveIn:
            return MoveIn(
                **self._who,
                call=call,
                topics=self._told,
                since=since,
                service=self._settings.service,
                alive=self._settings.alive / SECOND,
            )

        self._calls.ask(self._proxy, question, self._answered_stay)

    def _answered_stay(self, answer: AnyAnswer) -> None:
        if not isinstance(answer, Welcome):
            if not (isinstance(answer, Refused) and answer.code is Code.SUPERSEDED):
                self._env.log("proxy.refused", proxy=self._proxy, answer=type(answer).__name__)
                delay = self._settings.retry_most
                self._env.call_later(delay, self._stay_again, self._who["nonce"])
            return
        self.welcomed = True
        self._report = answer.report
        for topic, places in self._places(self._flows).items():
            if self._report and self._told.get(topic) != places:
                self._dirty[topic] = None  # it came further while the question was under way
        self._on_welcomed(answer.prepared)
        if self._left is not None:
            self._ask_to_leave()
        self._await_tick()
        if self._dirty or self._gone:
            self._sign_of_life()

    def _stay_again(self, nonce: int) -> None:
        if self._there and self._who["nonce"] == nonce and not self.welcomed:
            self._ask_to_stay()

    # Being there

    def consumed(self, topic: str) -> None:
        """A topic has come further, durably."""
        if self._report:
            self._dirty[topic] = None

    def subscribed(self, topic: str) -> None:
        """A topic is new; if it was there before, that is told, too."""
        self._dirty[topic] = None
        if self._left is not None:
            self._ask_to_leave()
        self._sign_of_life()

    def unsubscribed(self, topic: str) -> None:
        """A topic is not wanted any more."""
        self._dirty.pop(topic, None)
        self._gone[topic] = 0
        self._sign_of_life()

    def arrived(self, size: int, peer: str, missing: str) -> None:
        """The move-in is over."""
        self._calls.ask(
            self._proxy,
            lambda call: Arrived(**self._who, call=call, bytes=size, peer=peer, reason=missing),
            self._answered,
        )

    def _tick(self) -> None:
        self._await_tick()
        self._sign_of_life()

    def _await_tick(self) -> None:
        if self._alive_timer is not None:
            self._alive_timer.cancel()
        self._alive_timer = self._env.call_later(self._settings.alive, self._tick)

    def _sign_of_life(self) -> None:
        if not self.welcomed or self._left is not None:
            return
        if self._alive_call is not None:
            self._calls.drop(self._alive_call)
        topics = self._places(topic for topic in self._dirty if topic in self._flows)

        def answered(answer: AnyAnswer) -> None:
            self._alive_call = None
            if isinstance(answer, Refused):
                self._answered(answer)
                return
            for topic, places in topics.items():
                flow = self._flows.get(topic)
                if flow is not None and write_places(flow.durable) == places:
                    self._dirty.pop(topic, None)
            for topic in [t for t, said in self._gone.items() if 0 < said <= answer.call]:
                del self._gone[topic]

        self._alive_call = self._calls.ask(
            self._proxy,
            lambda call: Alive(**self._who, call=call, topics=topics, gone=self._gone_by(call)),
            answered,
        )

    def _gone_by(self, call: int) -> Gone:
        self._gone = {topic: said or call for topic, said in self._gone.items()}
        return dict(self._gone)

    def _answered(self, answer: AnyAnswer) -> None:
        if isinstance(answer, Refused) and answer.code is Code.STRANGER:
            self.welcomed = False
            self._ask_to_stay()

    def _places(self, topics: Iterable[str]) -> Topics:
        """What is durable of the cursors: a crash must not find the client behind its word."""
        return {topic: write_places(self._flows[topic].durable) for topic in topics}

    # What earlier proxies need not keep any more; told through this one

    def release(self, debt: Debt, released: Callable[[Debt], None]) -> None:
        """That stay is over; `released` when its proxy knows."""
        if debt in self._releasing:
            return
        self._releasing.add(debt)

        def answered(answer: AnyAnswer) -> None:
            self._releasing.discard(debt)
            if isinstance(answer, Released):
                released(debt)

        self._calls.ask(
            self._proxy,
            lambda call: Release(**self._who, call=call, proxy=debt.proxy, stay=debt.stay),
            answered,
        )

    # Going

    def leave(self, left: Callable[[], None]) -> None:
        """Ask the proxy to take over; `left` when it has."""
        self._left = left
        self._ask_to_leave()

    def _ask_to_leave(self) -> None:
        def answered(answer: AnyAnswer) -> None:
            if isinstance(answer, MovedOut) and self._left is not None:
                self._left()
            else:
                self._answered(answer)

        if self._leave_call is not None:
            self._calls.drop(self._leave_call)  # the topics have changed since
        topics = self._places(self._flows)
        self._leave_call = self._calls.ask(
            self._proxy,
            lambda call: MoveOut(**self._who, call=call, topics=topics, gone=self._gone_by(call)),
            answered,
        )
