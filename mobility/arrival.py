"""One move-in, from the first question until nothing is lacking.

In mode `position` every buffer is asked at once, and a buffer is done with as soon as the live flow
has caught up and no hole is left that it might fill. In the other modes buffers are emptied one
after the other once the mode allows it, and what came directly waits behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from identifiers import Position
from mobility.calls import Calls
from mobility.collecting import Collector
from mobility.events import Consumed, Gap, Update
from mobility.memory import Debt
from mobility.merging import Flow
from mobility.messages import AnyAnswer, Batch, Fetch, Item, Topics, Who, read_places, write_places
from mobility.port import After, Message, PubSub
from mobility.service import Mode, ping_topic, pong_topic
from mobility.settings import ClientSettings
from psirp_sim.runtime.environment import Environment, Timer


class Arrives(Protocol):
    """What an arrival needs of its client."""

    env: Environment
    id: str
    settings: ClientSettings
    proxy: str
    flows: dict[str, Flow]
    calls: Calls
    counters: dict[str, int]

    @property
    def who(self) -> Who:
        """Who asks."""

    def pass_on(self, events: Iterable[Consumed]) -> None:
        """This is what the application gets next."""

    def arrived(self, collected: int, peer: str, missing: str) -> None:
        """It is over: so many bytes came out of buffers, of that proxy among others. `missing`:
        why something is, if anything is."""


class Arrival:
    """Of one client, at one place."""

    def __init__(
        self, client: Arrives, pubsub: PubSub, debts: Iterable[Debt], present: Debt
    ) -> None:
        """`debts`: where something may wait. `present`: the stay that begins; what its proxy has
        before this client hears anything itself may be needed, too."""
        self.env = client.env
        self.settings = client.settings
        self.who = client.who
        self._client = client
        self._pubsub = pubsub
        self._mode = client.settings.service.mode
        stop = self._mode is not Mode.POSITION
        self._collectors = [Collector(self, debt, stop) for debt in debts]
        self._own = Collector(self, present, stop=False)
        self._sources = self._collectors if stop else [*self._collectors, self._own]
        self._queue: list[Update] = []
        """What came directly, where there are no Positions to merge on."""
        self._consumed_at: dict[str, int] = {}
        """By topic: when something of it was consumed last."""
        self._missed = client.counters["missed"]
        self._begun = False
        self._over = False
        self._pong: _Pong | None = None
        self._timer: Timer | None = None
        self._caught_up_at = self.env.now()
        """Since when the live flow has brought what it can of the time before it."""
        self._holes: dict[tuple[object, ...], int] = {}
        """What is missing and might come directly still, and since when."""

    def cancel(self) -> None:
        """The client goes before it is over; what was not consumed stays where it is."""
        self._over = True
        for each in self._sources:
            each.close()
        if self._timer is not None:
            self._timer.cancel()

    # Which buffer is asked when

    def synchronise(self) -> None:
        """Begin to collect, once the mode allows it: without Positions, not before every
        subscription has been made."""
        ready = self._mode is Mode.POSITION or all(flow.ready for flow in self._flows)
        if self._begun or not self._collectors or not ready:
            return
        self._begun = True
        if self._mode is Mode.POSITION:
            for collector in self._collectors:
                collector.ask()
        elif self._mode is Mode.DELAY:
            self.env.call_later(self.settings.delay, self._collect_next)
        elif self._mode is Mode.PING:
            self._ping(self._collectors[0].debt.stay)
        else:
            self._collect_next()

    def welcomed(self, prepared: Batch | None) -> None:
        """The proxy has taken over, so it may have something, too, where there is no history; or
        has it already."""
        if self._mode is not Mode.POSITION or self._over:
            return
        if prepared is not None:
            self._own.offered(prepared)
        elif not all(self._pubsub.history(flow.topic) for flow in self._flows):
            self._own.ask()

    def _ping(self, stay: int) -> None:
        if self._over:
            return
        if self._pong is None:
            self._pong = _Pong(self._collect_next)
            self._pubsub.subscribe(pong_topic(self._client.id, stay), None, self._pong)
        if not self._pong.heard:
            ping = ping_topic(self._client.id, stay)
            self._pubsub.publish(ping, None, Message(b"ping"), _nothing)
            self.env.call_later(self.settings.ping, self._ping, stay)

    def _collect_next(self) -> None:
        """Without Positions buffers are emptied one after the other, the oldest first."""
        if not self._over:
            waiting = [each for each in self._collectors if not each.closed]
            if waiting:
                waiting[0].ask()

    # What comes

    def fetch(self, question: Callable[[int], Fetch], answered: Callable[[AnyAnswer], None]) -> int:
        return self._client.calls.ask(self._client.proxy, question, answered)

    def consumed(self, topic: str) -> None:
        """The application has got something of that topic."""
        self._consumed_at[topic] = self.env.now()

    def consumed_since(self, moment: int) -> Topics:
        flows = self._client.flows
        topics = (topic for topic, at in self._consumed_at.items() if at >= moment)
        return {topic: write_places(flows[topic].after) for topic in topics if topic in flows}

    def drop(self, call: int) -> None:
        self._client.calls.drop(call)

    def heard(self, update: Update) -> None:
        """A message came directly that cannot be merged on its Position."""
        if self._collectors:
            self._queue.append(update)
        else:
            self._client.pass_on([update])

    def collected(self, collector: Collector, items: Iterable[Item], batch: Batch) -> None:
        by_position = self._mode is Mode.POSITION
        for item in items:
            message = None if item.body is None else Message(item.body, item.kind)
            position = None if item.position is None else Position.parse(item.position)
            flow = self._flow_of(item.topic, collector)
            if flow is None:
                continue
            if by_position and position is not None:
                flow.offer(position, message, direct=False)
                self._client.pass_on(flow.take())
            elif message is not None:
                self._client.pass_on([Update(item.topic, position, message)])
        if by_position:
            self._aim(collector, batch)
        elif collector.exhausted:
            for topic, dropped in batch.dropped.items():
                self._client.pass_on([Gap(topic, None, 0, 1, dropped, collector.reason)])
            collector.close()
            self._collect_next()
        self.step()

    def _flow_of(self, topic: str, collector: Collector) -> Flow | None:
        """Whom it concerns what a stay kept of a topic."""
        flow = self._client.flows.get(topic)
        return None if flow is None or collector.debt.stay < flow.since else flow

    def _aim(self, collector: Collector, batch: Batch) -> None:
        for topic, places in batch.seen.items():
            flow = self._flow_of(topic, collector)
            if flow is not None:
                for position in read_places(places) or ():
                    flow.aim(position)

    # Whether it is over

    @property
    def _flows(self) -> Iterable[Flow]:
        return self._client.flows.values()

    @property
    def caught_up(self) -> bool:
        """The live flow has brought what it can of the time before it."""
        return all(flow.caught_up for flow in self._flows)

    @property
    def needs_buffers(self) -> bool:
        """A message waits behind one that did not come directly; or the live flow has brought what
        it can, and only buffers can say what is missing."""
        return self.caught_up or any(flow.has_hole for flow in self._flows)

    def step(self) -> None:
        """Called whenever something happened that may end it."""
        if self._over:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._mode is Mode.POSITION:
            self._close_collectors()
        if self._awaits_holes() or not all(each.closed for each in self._sources):
            # What ends by time ends even if nothing more happens.
            self._timer = self.env.call_later(self.settings.poll, self.step)
        elif self.caught_up:
            self._settle()

    def fell_behind(self) -> None:
        """Something came directly that is older than the live flow: more will."""
        self._caught_up_at = self.env.now()

    def _awaits_holes(self) -> bool:
        """Whether something is missing that was not for long."""
        now = self.env.now()
        holes = (hole for flow in self._flows for hole in flow.open_holes)
        self._holes = {hole: self._holes.get(hole, now) for hole in holes}
        return any(now - since <= self.settings.linger for since in self._holes.values())

    def _close_collectors(self) -> None:
        now, settings = self.env.now(), self.settings
        caught_up = self.caught_up
        if not caught_up:
            self._caught_up_at = now
        lacking = [flow.topic for flow in self._flows if flow.lacking]
        offers = self._own.prepared and not self._own.exhausted
        if caught_up and all(map(self._pubsub.history, lacking)) and not offers:
            self._own.close()  # it stands by only where there is no history
        full = sum(flow.held_bytes for flow in self._flows) > settings.held_bytes
        for each in self._sources:
            if each.closed:
                continue
            if caught_up and not lacking:
                each.close()
            elif full:
                each.close("the merge queue is full")
            elif each.gone:
                each.close("nothing is kept")
            elif each.empty_at is not None and each.empty_at - self._caught_up_at > settings.linger:
                each.close("history")
            elif now - each.heard_at > settings.patience:
                each.close("unreachable")

    def _settle(self) -> None:
        self._over = True
        reasons = dict.fromkeys(each.reason for each in self._collectors if each.reason)
        reason = ", ".join(reasons) or "history"
        for flow in list(self._flows):
            self._client.pass_on(flow.flush(reason))
        self._client.pass_on(self._queue)
        missing = reason if self._client.counters["missed"] > self._missed else ""
        # What was prepared first: it need not have waited for any other.
        sources = [self._own, *self._collectors] if self._own.prepared else self._collectors
        size = sum(each.bytes for each in sources)
        peer = next((each.debt.proxy for each in sources if each.bytes), "")
        self._client.arrived(size, peer, missing)


class _Pong:
    """In mode ping: hears that the routes are in place."""

    def __init__(self, answered: Callable[[], None]) -> None:
        self.heard = False
        self._answered = answered

    def subscribed(self, topic: str, base: After) -> None:
        """Pings are sent anyway until one is answered."""

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        if not self.heard:
            self.heard = True
            self._answered()

    def gap(self, topic: str, first: Position, last: Position) -> None:
        """Another ping follows."""


def _nothing() -> None:
    """Nobody waits for a ping to be taken."""
