"""The client library: a core (see `psirp_sim.runtime.environment`) on the host that moves.

    move_in(B): claim and debt durable -> attach at B, Fetch from every proxy that may keep
                something, subscribe after the Positions consumed, MoveIn to B   (all at once)
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

from identifiers import Position
from mobility.arrival import Arrival
from mobility.attendance import Attendance
from mobility.calls import Calls, Send
from mobility.debts import Debts
from mobility.events import Consume, Consumed, Gap, MovedIn, MovedOut, Notify, Superseded, Update
from mobility.identity import Claim, client_id, publisher_id
from mobility.memory import Debt, Memory
from mobility.merging import Flow, furthest
from mobility.messages import Batch, Code, MalformedMessage, Question, Refused, Who, read
from mobility.outgoing import Outgoing
from mobility.port import AccessPoint, After, Message, Subscription
from mobility.service import Mode
from mobility.settings import ClientSettings
from psirp_sim.runtime.environment import Changes, Environment


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
        self._claim = Claim(0, 0)
        settings = self.settings
        self.calls = Calls(env, send, settings.retry_first, settings.retry_most, settings.json)
        self.outgoing = Outgoing(
            env, pubsub, publisher_id(secret), settings.outgoing, settings.window
        )
        self._ear: _Ear | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._ended: dict[str, tuple[Position, ...]] = {}
        """By topic: what had been consumed of those unsubscribed from in the present stay."""
        self._arrival: Arrival | None = None
        self._leaving = False
        self._attendance = Attendance(env, self.calls, settings, self.flows, self._on_welcomed)
        self._debts = Debts(self._memory, self._attendance, settings.debts)

    # The core's side

    def start(self) -> None:
        self._debts.restore()
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
            self.calls.answer(message)
            self._on_superseded(Claim(message.epoch, message.nonce))
        else:
            self.calls.answer(message)

    # What an application calls

    @property
    def claim(self) -> Claim:
        """Of the present stay, or the last one."""
        return self._claim

    @property
    def debts(self) -> tuple[Debt, ...]:
        """The stays that may still keep something for this client, this one included."""
        return self._debts.claimed.debts

    def subscribe(self, topic: str) -> None:
        """Begin to consume a topic; where the client is does not matter."""
        if topic in self.flows:
            return
        there = self.stage in (Stage.CLAIMING, Stage.MOVING_IN, Stage.LIVE)
        since, floor = self._debts.epoch + (0 if there else 1), self._ended.pop(topic, ())
        flow = self.flows[topic] = Flow(topic, since=since, floor=floor if there else ())
        self._memory.note(flow)
        if self._ear is not None:
            self._subscribe(flow, self._ear)
            self._attendance.subscribed(topic)

    def unsubscribe(self, topic: str, effect: Changes | None = None) -> None:
        """No more of it; who subscribes again begins anew. `effect` becomes durable with it."""
        flow = self.flows.pop(topic, None)
        if flow is None:
            return
        self._ended[topic] = furthest(flow.floor.values(), flow.cursor.values())
        self._memory.forget(topic, effect)
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.cancel()
        self._attendance.unsubscribed(topic)
        self._step()

    def publish(
        self, topic: str, message: Message, accepted: Callable[[Position], None] | None = None
    ) -> None:
        """Publish once, in order, from here or from wherever the client is next."""
        self.outgoing.publish(topic, message, accepted)

    def move_in(self, proxy: str) -> None:
        """Be at that proxy from now on, whatever was going on."""
        self._detach()
        self._ended.clear()
        self.proxy = proxy
        claim = self._claim = Claim(self._debts.epoch + 1, self.env.random.randrange(1, 1 << 62))
        self.stage = Stage.CLAIMING

        def durable() -> None:
            if self._claim == claim and self.stage is Stage.CLAIMING:
                self._arrive()

        self._debts.incur(proxy, claim.epoch, durable)

    def move_out(self) -> None:
        """Leave properly: the proxy takes over, then the client is detached and told so."""
        if self.stage not in (Stage.MOVING_IN, Stage.LIVE) or self._leaving:
            return
        if self.settings.service.mode is Mode.NONE:
            self.connection_lost()
            self._notify(MovedOut(self.proxy))
            return
        self._leaving = True
        self._stop_arriving()
        self._attendance.leave(self._on_left)

    def connection_lost(self) -> None:
        """The client is nowhere: its access point is gone. The proxy will notice by itself."""
        self._detach()

    # Coming

    @property
    def who(self) -> Who:
        return {"secret": self._secret, "epoch": self._claim.epoch, "nonce": self._claim.nonce}

    def _arrive(self) -> None:
        service = self.settings.service
        self.stage = Stage.MOVING_IN
        self._pubsub.attach(self.proxy)
        self._ear = ear = _Ear(self)
        for flow in self.flows.values():
            flow.restart()
            if service.excludes(flow.topic):
                flow.begin_anew()
        served = service.mode is not Mode.NONE
        debts = self._debts.earlier if served else ()
        self._arrival = Arrival(self, self._pubsub, debts, self._debts.present)
        # First, since it is short: on a narrow link many subscriptions take seconds.
        self._arrival.synchronise()
        for flow in self.flows.values():
            self._subscribe(flow, ear)
        self.outgoing.open()
        if served:
            self._attendance.begin(self.proxy, self.who)
        self._step()

    def _subscribe(self, flow: Flow, ear: _Ear) -> None:
        after = flow.after if self.settings.service.mode is Mode.POSITION else None
        self._subscriptions[flow.topic] = self._pubsub.subscribe(flow.topic, after, ear)

    def _step(self) -> None:
        if self._arrival is not None:
            self._arrival.step()

    def arrived(self, collected: int, peer: str, missing: str) -> None:
        """The move-in is over."""
        self._arrival = None
        self.stage = Stage.LIVE
        self._debts.pay()
        if self.settings.service.mode is not Mode.NONE:
            self._attendance.arrived(collected, peer, missing)
        self._notify(MovedIn(self.proxy, collected, missing))

    def _on_welcomed(self, prepared: Batch | None) -> None:
        if self.stage is Stage.LIVE:
            self._debts.pay()
        self._debts.release()
        if self._arrival is not None:
            self._arrival.welcomed(prepared)

    # Being there

    def together(self, call: Callable[..., None], *args: object) -> None:
        """Make a call from which several messages may come: what is consumed becomes durable in
        one write."""
        if not self._memory.hold():
            call(*args)
            return
        try:
            call(*args)
        finally:
            self._memory.flush()

    def heard(self, topic: str, position: Position | None, message: Message) -> None:
        """A message of the live flow."""
        flow = self.flows.get(topic)
        if flow is None:
            return
        if self.settings.service.mode is Mode.POSITION and position is not None:
            follows = flow.pass_directly(position, message)
            if follows is not None:
                self.pass_on((follows,))
                if self._arrival is not None and not flow.caught_up:
                    self._arrival.fell_behind()  # nothing can end with it
                else:
                    self._after_direct(flow)
                return
            flow.offer(position, message, direct=True)
            self.pass_on(flow.take())
            self._after_direct(flow)
            if not flow.heard.items() <= flow.noted.items():
                self._note(flow, {})  # it waits here, and perhaps nobody else has it
        elif self._arrival is not None:
            self._arrival.heard(Update(topic, position, message))
        else:
            self.pass_on([Update(topic, position, message)])

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
            self.pass_on(flow.take())
            self._after_direct(flow)
            if self._arrival is not None:
                self._arrival.synchronise()

    def _after_direct(self, flow: Flow) -> None:
        if self.stage is Stage.LIVE and flow.caught_up:
            # Nobody is left who could fill a hole; not for one that is leaving, either.
            self.pass_on(flow.flush("history"))
        self._step()

    def pass_on(self, events: Iterable[Consumed]) -> None:
        """Let the application consume these."""
        for event in events:
            flow = self.flows.get(event.topic)
            if flow is None:
                continue
            self.counters["consumed"] += 1
            if self._arrival is not None:
                self._arrival.consumed(event.topic)
            if isinstance(event, Gap):
                self.counters["gaps"] += 1
                self.counters["missed"] += event.missed
            self._note(flow, self._consume(event))

    def _note(self, flow: Flow, effect: Changes) -> None:
        if self.flows.get(flow.topic) is not flow:
            self.env.storage.write(effect)  # unsubscribed by who consumed it
            return
        after = flow.after

        def durable() -> None:
            flow.durable = after
            self._attendance.consumed(flow.topic)

        self._memory.note(flow, effect, durable)

    # Going

    def _on_left(self) -> None:
        proxy = self.proxy
        self._detach()
        self._notify(MovedOut(proxy))

    def _stop_arriving(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _detach(self) -> None:
        self._stop_arriving()
        self._attendance.end()
        self.calls.drop_all()
        if self._ear is not None:
            self._ear.deaf = True
            self._ear = None
            self.outgoing.close()
            self._pubsub.detach()
        self._subscriptions.clear()
        self._leaving = False
        self.stage = Stage.DETACHED

    def _on_superseded(self, claim: Claim) -> None:
        if claim > self._claim and self.stage is not Stage.SUPERSEDED:
            self._detach()
            self.stage = Stage.SUPERSEDED
            self._debts.exceed(claim.epoch)
            self._notify(Superseded(claim.epoch))


class _Ear:
    """What the access point calls while the client is attached to it."""

    def __init__(self, client: MobileClient) -> None:
        self.deaf = False
        self._client = client

    def subscribed(self, topic: str, base: After) -> None:
        if not self.deaf:
            self._client.subscribed(topic, base)

    def deliver(self, topic: str, position: Position | None, message: Message) -> None:
        if not self.deaf:
            self._client.heard(topic, position, message)

    def gap(self, topic: str, first: Position, last: Position) -> None:
        if not self.deaf:
            self._client.missing(topic, first, last)
