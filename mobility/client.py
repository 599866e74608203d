"""The client library: a core (see `psirp_sim.runtime.environment`) on the host that moves.

    move_in(B): claim and debt durable -> attach at B, subscribe after the Positions consumed,
                MoveIn to B, Fetch from every proxy that may keep something   (all at once)
                -> what follows the cursors is consumed as it comes
                -> direct flow caught up and nothing lacking: gaps told, Release, Arrived, live
    move_out(): MoveOut to the proxy -> answered: detach

A debt is a stay at a proxy, noted before the client asks for it. So a client that vanished, crashed
or was turned away in the middle of anything still knows who may keep something for it, and the next
move-in, wherever it is, collects from all of them. Moves may overlap in any way: a new one ends the
one before, and what was not consumed is still where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec.structs import replace

from identifiers import Position
from mobility.calls import Calls, Send
from mobility.collecting import Collector
from mobility.events import Consume, Consumed, Gap, MovedIn, MovedOut, Notify, Superseded, Update
from mobility.identity import Claim, client_id, publisher_id
from mobility.memory import Claimed, Debt, Memory
from mobility.merging import Flow
from mobility.messages import (
    Alive,
    AnyAnswer,
    Arrived,
    Batch,
    Code,
    Fetch,
    Item,
    MalformedMessage,
    MoveIn,
    MoveOut,
    Question,
    Refused,
    Release,
    Released,
    Topics,
    Welcome,
    Who,
    read,
    read_places,
    write_places,
)
from mobility.messages import MovedOut as MovedOutAnswer
from mobility.outgoing import Outgoing
from mobility.port import AccessPoint, After, Message, Subscription
from mobility.service import Mode, ping_topic, pong_topic
from mobility.settings import ClientSettings
from psirp_sim.runtime.environment import Changes, Environment, Timer


class Stage(StrEnum):
    """Where a client is in its moves."""

    DETACHED = "detached"
    CLAIMING = "claiming"
    """Its claim is not durable yet."""
    MOVING_IN = "moving in"
    LIVE = "live"
    SUPERSEDED = "superseded"


class MobileClient:
    """One client. Called by one application, which gets messages through `consume`."""

    def __init__(
        self,
        env: Environment,
        secret: bytes,
        pubsub: AccessPoint,
        send: Send,
        consume: Consume,
        notify: Notify = lambda notice: None,
        settings: ClientSettings | None = None,
    ) -> None:
        self.env = env
        self.id = client_id(secret)
        self.settings = settings or ClientSettings()
        self.stage = Stage.DETACHED
        self.proxy = ""
        """Where it is, or comes to."""
        self.flows: dict[str, Flow] = {}
        self.counters = {"consumed": 0, "gaps": 0, "missed": 0, "malformed": 0}
        self._secret = secret
        self._pubsub = pubsub
        self._consume = consume
        self._notify = notify
        self._memory = Memory(env)
        self._claimed = Claimed()
        self._claim = Claim(0, 0)
        self._calls = Calls(
            env, send, self.settings.retry_first, self.settings.retry_most, self.settings.json
        )
        settings = self.settings
        self.outgoing = Outgoing(
            env, pubsub, publisher_id(secret), settings.outgoing, settings.window
        )
        self._ear: _Ear | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._collectors: list[Collector] = []
        self._queue: list[tuple[str, Position | None, Message]] = []
        """The merge queue where there are no Positions to merge on."""
        self._releasing: set[Debt] = set()
        self._welcomed = self._report = self._leaving = False
        self._dirty: dict[str, None] = {}
        """Topics of which the proxy does not know how far they have come."""
        self._gone: dict[str, None] = {}
        self._alive_call: int | None = None
        self._alive_timer: Timer | None = None
        self._step_timer: Timer | None = None
        self._caught_up_at = 0
        """Since when the live flow has brought what it can of the time before it."""

    # The core's side

    def start(self) -> None:
        self._claimed = self._memory.claimed()
        for flow in self._memory.flows():
            self.flows[flow.topic] = flow
        self.outgoing.restore()

    def stop(self) -> None:
        self._detach()

    def receive(self, peer: str, packet: bytes) -> None:
        """A message of a proxy."""
        try:
            message = read(packet)
        except MalformedMessage:
            self.counters["malformed"] += 1
            return
        if isinstance(message, Question):
            self.counters["malformed"] += 1
        elif isinstance(message, Refused) and message.code is Code.SUPERSEDED:
            self._calls.answer(message)
            self._on_superseded(Claim(message.epoch, message.nonce))
        else:
            self._calls.answer(message)

    # What an application calls

    @property
    def debts(self) -> tuple[Debt, ...]:
        """The stays that may still keep something for this client, this one included."""
        return self._claimed.debts

    def subscribe(self, topic: str) -> None:
        """Begin to consume a topic; where the client is does not matter."""
        if topic in self.flows:
            return
        flow = self.flows[topic] = Flow(topic)
        self._memory.note(flow)
        self._gone.pop(topic, None)
        if self._ear is not None:
            self._subscribe(flow)
            self._changed(topic)

    def unsubscribe(self, topic: str) -> None:
        """No more of it."""
        if self.flows.pop(topic, None) is None:
            return
        self._memory.forget(topic)
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.cancel()
        self._dirty.pop(topic, None)
        self._gone[topic] = None
        self._sign_of_life()
        self._step()

    def publish(
        self, topic: str, message: Message, accepted: Callable[[Position], None] | None = None
    ) -> None:
        """Publish once, in order, from here or from wherever the client is next."""
        self.outgoing.publish(topic, message, accepted)

    def move_in(self, proxy: str) -> None:
        """Be at that proxy from now on, whatever was going on."""
        self._detach()
        self.proxy = proxy
        epoch = self._claimed.epoch + 1
        debts = (*self._claimed.debts, Debt(proxy, epoch))
        self._claimed = replace(self._claimed, epoch=epoch, debts=debts[-self.settings.debts :])
        claim = self._claim = Claim(epoch, self.env.random.randrange(1, 1 << 62))
        self.stage = Stage.CLAIMING

        def durable() -> None:
            if self._claim == claim and self.stage is Stage.CLAIMING:
                self._arrive()

        self._memory.save(self._claimed, durable)

    def move_out(self) -> None:
        """Leave properly: the proxy takes over, then the client is detached and told so."""
        if self.stage not in (Stage.MOVING_IN, Stage.LIVE) or self._leaving:
            return
        if self.settings.service.mode is Mode.NONE:
            self.connection_lost()
            self._notify(MovedOut(self.proxy))
            return
        self._leaving = True
        self._stop_collecting()
        self._ask_to_leave()

    def connection_lost(self) -> None:
        """The client is nowhere: its access point is gone. The proxy will notice by itself."""
        self._detach()

    # Coming

    def _arrive(self) -> None:
        service = self.settings.service
        self.stage = Stage.MOVING_IN
        self._caught_up_at = self.env.now()
        self._pubsub.attach(self.proxy)
        self._ear = _Ear(self)
        for flow in self.flows.values():
            flow.restart()
            if service.excludes(flow.topic):
                flow.begin_anew()
            self._subscribe(flow)
        self.outgoing.open()
        if service.mode is Mode.NONE:
            self._welcomed = True
        else:
            self._ask_to_stay()
            self._release_paid()
            debts = self._claimed.debts[:-1]
            self._collectors = [
                Collector(self, debt, service.mode is not Mode.POSITION) for debt in debts
            ]
            self._synchronise()
        self._step()

    def _subscribe(self, flow: Flow) -> None:
        assert self._ear is not None
        after = flow.after if self.settings.service.mode is Mode.POSITION else None
        self._subscriptions[flow.topic] = self._pubsub.subscribe(flow.topic, after, self._ear)

    def _ask_to_stay(self) -> None:
        settings = self.settings
        self._dirty.clear()
        self._gone.clear()

        def question(call: int) -> MoveIn:
            return MoveIn(
                **self.who,
                call=call,
                topics=self._places(self.flows),
                service=settings.service,
                alive=settings.alive / 1e9,
            )

        self._calls.ask(self.proxy, question, self._on_welcome)

    def _on_welcome(self, answer: AnyAnswer) -> None:
        if not isinstance(answer, Welcome):
            if not (isinstance(answer, Refused) and answer.code is Code.SUPERSEDED):
                self.env.log("a proxy refused", proxy=self.proxy, answer=type(answer).__name__)
                self.env.call_later(self.settings.retry_most, self._stay_again, self._claim)
            return
        self._welcomed = True
        self._report = answer.report
        self._pay()
        self._release_paid()
        if self._leaving:
            self._ask_to_leave()
        self._tick()

    def _stay_again(self, claim: Claim) -> None:
        if claim == self._claim and self._ear is not None and not self._welcomed:
            self._ask_to_stay()

    # Collecting

    def _synchronise(self) -> None:
        """Begin to collect, once the mode allows it."""
        mode = self.settings.service.mode
        if not self._collectors:
            return
        if mode is Mode.POSITION:
            for collector in self._collectors:
                collector.ask()
        elif mode is Mode.DELAY:
            self.env.call_later(self.settings.delay, self._collect_next, self._claim)
        elif mode is Mode.PING:
            self._ping(self._claim, self._collectors[0].debt.stay)
        else:
            self._collect_next(self._claim)

    def _ping(self, claim: Claim, stay: int) -> None:
        if claim != self._claim or self._ear is None or self._ear.answered:
            return
        pong = pong_topic(self.id, stay)
        if pong not in self._subscriptions:
            self._subscriptions[pong] = self._pubsub.subscribe(pong, None, self._ear)
        self._pubsub.publish(ping_topic(self.id, stay), None, Message(b"ping"), _nothing)
        self.env.call_later(self.settings.ping, self._ping, claim, stay)

    def _collect_next(self, claim: Claim) -> None:
        """Without Positions buffers are emptied one after the other, the oldest first."""
        if claim == self._claim and self._ear is not None:
            waiting = [each for each in self._collectors if not each.closed]
            if waiting:
                waiting[0].ask()

    def fetch(self, question: Callable[[int], Fetch], answered: Callable[[AnyAnswer], None]) -> int:
        return self._calls.ask(self.proxy, question, answered)

    def drop(self, call: int) -> None:
        self._calls.drop(call)

    @property
    def who(self) -> Who:
        return {"secret": self._secret, "epoch": self._claim.epoch, "nonce": self._claim.nonce}

    def collected(self, collector: Collector, items: Iterable[Item], batch: Batch) -> None:
        by_position = self.settings.service.mode is Mode.POSITION
        for item in items:
            message = None if item.body is None else Message(item.body, item.kind)
            position = None if item.position is None else Position.parse(item.position)
            flow = self.flows.get(item.topic)
            if flow is None:
                continue
            if by_position and position is not None:
                flow.offer(position, message, direct=False)
                self._pass_on(flow.take())
            elif message is not None:
                self._pass_on([Update(item.topic, position, message)])
        if by_position:
            for topic, places in batch.seen.items():
                flow = self.flows.get(topic)
                for position in read_places(places) or () if flow is not None else ():
                    assert flow is not None
                    flow.aim(position)
        elif collector.exhausted:
            for topic, dropped in batch.dropped.items():
                self._pass_on([Gap(topic, None, 0, 1, dropped, collector.reason)])
            collector.close()
            self._collect_next(self._claim)
        self._step()

    def _step(self) -> None:
        """Whether the move-in is over; called whenever something happened that may end it."""
        if self.stage is not Stage.MOVING_IN or self._leaving:
            return
        if self._step_timer is not None:
            self._step_timer.cancel()
            self._step_timer = None
        if self.settings.service.mode is Mode.POSITION:
            self._close_collectors()
        flows = self.flows.values()
        if all(each.closed for each in self._collectors) and all(flow.caught_up for flow in flows):
            self._settle()
        elif any(not each.closed for each in self._collectors):
            # What ends by time ends even if nothing more happens.
            self._step_timer = self.env.call_later(self.settings.poll, self._step)

    def _close_collectors(self) -> None:
        now, settings = self.env.now(), self.settings
        flows = self.flows.values()
        caught_up = all(flow.caught_up for flow in flows)
        if not caught_up:
            self._caught_up_at = now
        lacking = any(flow.lacking for flow in flows)
        full = sum(flow.held_bytes for flow in flows) > settings.held_bytes
        for each in self._collectors:
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
        reasons = dict.fromkeys(each.reason for each in self._collectors if each.reason)
        reason = ", ".join(reasons) or "history"
        missed = self.counters["missed"]
        for flow in self.flows.values():
            self._pass_on(flow.flush(reason))
        queue, self._queue = self._queue, []
        for topic, position, message in queue:
            self._pass_on([Update(topic, position, message)])
        size = sum(each.bytes for each in self._collectors)
        peer = next((each.debt.proxy for each in self._collectors if each.bytes), "")
        missing = reason if self.counters["missed"] > missed else ""
        self._collectors = []
        self.stage = Stage.LIVE
        self._pay()
        if self.settings.service.mode is not Mode.NONE:
            self._calls.ask(
                self.proxy,
                lambda call: Arrived(
                    **self.who,
                    call=call,
                    bytes=size,
                    peer=peer,
                    reason=missing,
                ),
                self._on_heard,
            )
        self._notify(MovedIn(self.proxy, size, missing))

    def _pay(self) -> None:
        """Everything has been consumed. Earlier stays are over once this proxy has taken over:
        until then, what is published after this client vanishes might be kept by nobody else."""
        debts = self._claimed.debts
        if self.stage is Stage.LIVE and self._welcomed and len(debts) > 1:
            paid = (*self._claimed.paid, *debts[:-1])[-self.settings.debts :]
            self._claimed = replace(self._claimed, debts=debts[-1:], paid=paid)
            # Once this is durable so is everything consumed before: it need not be kept any more.
            self._memory.save(self._claimed, self._release_paid)

    def _release_paid(self) -> None:
        """Tell proxies what they need not keep."""
        if self._welcomed:
            for debt in self._claimed.paid:
                if debt not in self._releasing:
                    self._releasing.add(debt)
                    self._release(debt)

    def _release(self, debt: Debt) -> None:
        def answered(answer: AnyAnswer) -> None:
            self._releasing.discard(debt)
            if isinstance(answer, Released):
                paid = tuple(each for each in self._claimed.paid if each != debt)
                self._claimed = replace(self._claimed, paid=paid)
                self._memory.save(self._claimed)

        self._calls.ask(
            self.proxy,
            lambda call: Release(**self.who, call=call, proxy=debt.proxy, stay=debt.stay),
            answered,
        )

    # Being there

    def heard(self, topic: str, position: Position | None, message: Message) -> None:
        """A message of the live flow."""
        flow = self.flows.get(topic)
        if flow is None:
            return
        by_position = self.settings.service.mode is Mode.POSITION and position is not None
        if by_position and position is not None:
            flow.offer(position, message, direct=True)
            self._pass_on(flow.take())
            self._after_direct(flow)
        elif self.stage is Stage.MOVING_IN and not self._leaving and self._collectors:
            self._queue.append((topic, position, message))
        else:
            self._pass_on([Update(topic, position, message)])

    def missing(self, topic: str, first: Position, last: Position) -> None:
        """The live flow has a gap."""
        flow = self.flows.get(topic)
        if flow is not None:
            flow.missing(first, last)
            self._after_direct(flow)

    def subscribed(self, topic: str, base: After) -> None:
        """The live flow is in effect."""
        flow = self.flows.get(topic)
        if flow is not None:
            begun = flow.begun
            flow.subscribed(base, self._pubsub.history(topic) > 0)
            if not begun:
                self._note(flow, {})
            self._pass_on(flow.take())
            self._after_direct(flow)

    def ping_answered(self) -> None:
        """In mode ping: the routes are in place."""
        self._collect_next(self._claim)

    def _after_direct(self, flow: Flow) -> None:
        if self.stage is Stage.LIVE and not self._leaving and flow.caught_up:
            # Nobody is left who could fill a hole.
            self._pass_on(flow.flush("history"))
        self._step()

    def _pass_on(self, events: Iterable[Consumed]) -> None:
        for event in events:
            flow = self.flows.get(event.topic)
            if flow is None:
                continue
            self.counters["consumed"] += 1
            if isinstance(event, Gap):
                self.counters["gaps"] += 1
                self.counters["missed"] += event.missed
            self._note(flow, self._consume(event))

    def _note(self, flow: Flow, effect: Changes) -> None:
        after = flow.after

        def durable() -> None:
            flow.durable = after
            if self._report:
                self._dirty[flow.topic] = None

        self._memory.note(flow, effect, durable)

    # Signs of life

    def _tick(self) -> None:
        if self._alive_timer is not None:
            self._alive_timer.cancel()
        self._alive_timer = self.env.call_later(self.settings.alive, self._tick)
        self._sign_of_life()

    def _changed(self, topic: str) -> None:
        self._dirty[topic] = None
        self._sign_of_life()

    def _sign_of_life(self) -> None:
        if not self._welcomed or self._leaving or self.settings.service.mode is Mode.NONE:
            return
        if self._alive_call is not None:
            self._calls.drop(self._alive_call)
        topics = self._places(topic for topic in self._dirty if topic in self.flows)
        gone = tuple(self._gone)

        def answered(answer: AnyAnswer) -> None:
            self._alive_call = None
            if isinstance(answer, Refused):
                self._on_heard(answer)
                return
            for topic in topics:
                flow = self.flows.get(topic)
                if flow is not None and write_places(flow.durable) == topics[topic]:
                    self._dirty.pop(topic, None)
            for topic in gone:
                self._gone.pop(topic, None)

        self._alive_call = self._calls.ask(
            self.proxy,
            lambda call: Alive(
                **self.who,
                call=call,
                topics=topics,
                gone=gone,
            ),
            answered,
        )

    def _on_heard(self, answer: AnyAnswer) -> None:
        if isinstance(answer, Refused) and answer.code is Code.STRANGER:
            # The proxy lost its disk, or took this client for gone too long ago.
            self._welcomed = False
            self._ask_to_stay()

    def _places(self, topics: Iterable[str]) -> Topics:
        """What is durable of the cursors: a crash must not find the client behind its word."""
        return {topic: write_places(self.flows[topic].durable) for topic in topics}

    # Going

    def _ask_to_leave(self) -> None:
        def answered(answer: AnyAnswer) -> None:
            if isinstance(answer, MovedOutAnswer):
                proxy = self.proxy
                self._detach()
                self._notify(MovedOut(proxy))
            else:
                self._on_heard(answer)

        self._calls.ask(
            self.proxy,
            lambda call: MoveOut(
                **self.who,
                call=call,
                topics=self._places(self.flows),
            ),
            answered,
        )

    def _stop_collecting(self) -> None:
        for each in self._collectors:
            each.close()
        self._collectors = []
        if self._step_timer is not None:
            self._step_timer.cancel()
            self._step_timer = None

    def _detach(self) -> None:
        self._stop_collecting()
        self._calls.drop_all()
        self._releasing.clear()
        self._alive_call = None
        if self._alive_timer is not None:
            self._alive_timer.cancel()
            self._alive_timer = None
        if self._ear is not None:
            self._ear.deaf = True
            self._ear = None
            self.outgoing.close()
            self._pubsub.detach()
        self._subscriptions.clear()
        self._queue.clear()
        self._welcomed = self._report = self._leaving = False
        self.stage = Stage.DETACHED

    def _on_superseded(self, claim: Claim) -> None:
        if claim > self._claim and self.stage is not Stage.SUPERSEDED:
            self._detach()
            self.stage = Stage.SUPERSEDED
            # The next move-in is meant to win.
            epoch = max(self._claimed.epoch, claim.epoch)
            self._claimed = replace(self._claimed, epoch=epoch)
            self._notify(Superseded(claim.epoch))


class _Ear:
    """What the access point calls while the client is attached to it."""

    def __init__(self, client: MobileClient) -> None:
        self.deaf = False
        self.answered = False
        self._client = client

    def subscribed(self, topic: str, base: After) -> None:
        if not self.deaf:
            self._client.subscribed(topic, base)

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        if self.deaf:
            return
        if topic.startswith("mobility:pong:"):
            if not self.answered:
                self.answered = True
                self._client.ping_answered()
        else:
            self._client.heard(topic, position, message)

    def gap(self, topic: str, first: Position, last: Position) -> None:
        if not self.deaf:
            self._client.missing(topic, first, last)


def _nothing() -> None:
    """Nobody waits for a ping to be taken."""
