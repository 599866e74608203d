"""The mobility proxy: a core (see `psirp_sim.runtime.environment`), one at each access point.

It answers clients, keeps a handler for each stay, and passes on what is for another proxy. Two
proxies talk only when a client collects, through the new one, what the old one kept.

Everything a client asks may come twice, late or out of order: a question is answered from the state
that it finds, and changes nothing when it was answered before. What is acknowledged is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from mobility.calls import Send
from mobility.handler import Handler, Record, stored
from mobility.identity import Claim, client_id
from mobility.messages import (
    Alive,
    AnyAnswer,
    AnyMessage,
    Arrived,
    Batch,
    Code,
    Fetch,
    Heard,
    MalformedMessage,
    MovedOut,
    MoveIn,
    MoveOut,
    Question,
    Refused,
    Release,
    Released,
    State,
    Welcome,
    encode,
    is_json,
    read,
)
from mobility.port import PubSub
from mobility.settings import ProxySettings
from mobility.tracing import Tracing
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer

_CLAIM = b"mobility/claim/"

Stay = tuple[str, int]
"""Client id and epoch."""


class Asker(NamedTuple):
    """Who waits for an answer, to which call, in which form."""

    peer: str
    call: int
    json: bool


class MobilityProxy:
    """One proxy. `send` reaches clients, by the names they are heard under, and other proxies."""

    def __init__(
        self,
        env: Environment,
        name: str,
        pubsub: PubSub,
        send: Send,
        settings: ProxySettings | None = None,
        knows: Callable[[str], bool] = lambda proxy: True,
    ) -> None:
        """`name`: as other proxies reach this one. `knows`: which others it may talk to: a client
        names them, so this is what keeps it from being sent elsewhere."""
        self.env = env
        self.name = name
        self.pubsub = pubsub
        self.settings = settings or ProxySettings()
        self.handlers: dict[Stay, Handler] = {}
        self.counters = {
            "asked": 0, "malformed": 0, "refused": 0, "relayed": 0, "vanished": 0, "expired": 0,
        }  # fmt: skip
        self._send = send
        self._knows = knows
        self._epochs: dict[str, set[int]] = {}
        """Of each client: its stays that are kept."""
        self._claims: dict[str, Claim] = {}
        """The highest known of each client; the one heard of longest ago first."""
        self._relays: dict[int, tuple[Asker, Timer]] = {}
        self._next_relay = env.random.randrange(1, 1 << 48)
        self._leaving: dict[Stay, Asker] = {}
        """Who waits for the subscriptions of its handler to be in effect."""
        self._arriving: dict[Stay, Asker] = {}
        self._tracing = Tracing(env, self.settings.domain)

    # The core's side

    def start(self) -> None:
        for key, value in self.env.storage.scan(_CLAIM):
            self._claims[key[len(_CLAIM) :].hex()] = Claim(*msgspec.msgpack.decode(value))
        for record in stored(self.env):
            handler = self._add(record)
            handler.restore()
            if record.state == "here":
                self._watch(handler)
                handler.stand_by()
            elif record.state == "away":
                # Only this proxy's own clock is asked; if it ran back, the time begins anew.
                gone = self.env.wall() - record.since
                keep = int(record.service.keep * SECOND)
                self._after(handler, keep - gone if gone >= 0 else keep, self._expire)
                handler.take_over()
            else:
                self._after(handler, self.settings.remember, self._forget)

    def stop(self) -> None:
        for handler in self.handlers.values():
            handler.quit()

    def receive(self, peer: str, packet: bytes) -> None:
        """A message of that peer: a client, or another proxy."""
        try:
            message = read(packet)
        except MalformedMessage:
            self.counters["malformed"] += 1
            return
        if isinstance(message, Question):
            self.counters["asked"] += 1
            self._asked(Asker(peer, message.call, is_json(packet)), message)
        else:
            self._answered(message)

    def connection_lost(self, client: str, peer: str) -> None:
        """The transport says that this client is not at the other end of `peer` any more."""
        for handler in self._of(client):
            if handler.peer == peer and handler.state == "here":
                self._vanished(handler)

    @property
    def buffered_bytes(self) -> int:
        """What waits for clients, all together."""
        return sum(handler.buffer.bytes for handler in self.handlers.values())

    # Questions

    def _asked(self, asker: Asker, question: AnyMessage) -> None:
        if isinstance(question, Fetch | Release) and question.proxy != self.name:
            self._relay(asker, question)
            return
        assert isinstance(question, Question)
        client = client_id(question.secret)
        known = self._claims.get(client)
        if known is not None and question.claim < known:
            refusal = Refused(
                call=asker.call, code=Code.SUPERSEDED, epoch=known.epoch, nonce=known.nonce
            )
            self._refuse(asker, refusal)
            return
        if isinstance(question, MoveIn):
            self._move_in(asker, client, question)
        elif isinstance(question, Fetch):
            self._fetch(asker, client, question)
        elif isinstance(question, Release):
            self._release(asker, client, question)
        else:
            handler = self.handlers.get((client, question.epoch))
            if handler is None or handler.claim != question.claim or handler.state == "expired":
                self._refuse(asker, Refused(call=asker.call, code=Code.STRANGER))
                return
            handler.peer = asker.peer
            if isinstance(question, MoveOut):
                self._move_out(asker, handler, question)
            elif isinstance(question, Alive):
                self._alive(asker, handler, question)
            elif isinstance(question, Arrived):
                self._arrived(asker, handler, question)

    def _move_in(self, asker: Asker, client: str, question: MoveIn) -> None:
        stay = (client, question.epoch)
        handler = self.handlers.get(stay)
        if handler is None or handler.claim != question.claim:
            if not self._has_room(client, question):
                self._refuse(asker, Refused(call=asker.call, code=Code.BUSY))
                return
            if handler is not None:  # another copy of the client, with a lower claim
                self._tell_superseded(handler, question.claim)
                handler.erase()
            self._claim(client, question.claim)
            record = Record(
                client=client,
                epoch=question.epoch,
                nonce=question.nonce,
                topics=question.topics,
                service=question.service.within(self.settings.most),
                alive=question.alive,
            )
            handler = self._add(record)
            handler.trace_id = self._tracing.move_in_begin(client)
            handler.stand_by()
        handler.peer = asker.peer
        self._come_back(handler)

        def durable() -> None:
            self._arriving[stay] = asker
            self._welcome(stay)

        handler.save(durable)

    def _welcome(self, stay: Stay) -> None:
        handler = self.handlers.get(stay)
        if handler is None or not handler.effective or stay not in self._arriving:
            return
        asker = self._arriving.pop(stay)
        report = not all(map(handler.left_to_history, handler.record.topics))
        answer = Welcome(call=asker.call, service=handler.record.service, report=report)
        self._tell(asker, answer)

    def _alive(self, asker: Asker, handler: Handler, question: Alive) -> None:
        changed = bool(question.topics or question.gone)
        if changed:
            known = len({*handler.record.topics, *question.topics})
            if known > self.settings.topics:
                self._refuse(asker, Refused(call=asker.call, code=Code.BUSY))
                return
            handler.update(question.topics, question.gone)
            handler.stand_by()
        self._come_back(handler)
        if changed:
            handler.save(lambda: self._tell(asker, Heard(call=asker.call)))
        else:
            self._tell(asker, Heard(call=asker.call))

    def _come_back(self, handler: Handler) -> None:
        """A sign of life, perhaps of a client that was taken for vanished."""
        if handler.state != "here":
            handler.become("here")
            handler.stand_by()
            handler.save()
        self._watch(handler)

    def _arrived(self, asker: Asker, handler: Handler, question: Arrived) -> None:
        if handler.trace_id:
            self._tracing.move_in_end(
                handler.record.client,
                handler.trace_id,
                question.bytes,
                question.peer,
                question.reason or None,
            )
            handler.trace_id = ""
        self._come_back(handler)
        self._tell(asker, Heard(call=asker.call))

    # Going

    def _move_out(self, asker: Asker, handler: Handler, question: MoveOut) -> None:
        stay = (handler.record.client, handler.record.epoch)
        gone = tuple(topic for topic in handler.record.topics if topic not in question.topics)
        handler.update(question.topics, gone)
        self._go_away(handler, None)
        handler.take_over()  # of topics that are new, if it was away already

        def durable() -> None:
            self._leaving[stay] = asker
            self._moved_out(stay)

        handler.save(durable)

    def _moved_out(self, stay: Stay) -> None:
        handler = self.handlers.get(stay)
        if handler is None or not handler.effective or stay not in self._leaving:
            return
        asker = self._leaving.pop(stay)
        self._tell(asker, MovedOut(call=asker.call))

    def _go_away(self, handler: Handler, reason: str | None) -> None:
        if handler.state != "here":
            return
        handler.become("away", self.env.wall())
        handler.take_over()
        if handler.trace_id:
            client, trace_id = handler.record.client, handler.trace_id
            self._tracing.move_in_end(client, trace_id, 0, "", "moved on before it was over")
            handler.trace_id = ""
        self._tracing.move_out(handler.record.client, reason)
        self._after(handler, int(handler.record.service.keep * SECOND), self._expire)

    def _vanished(self, handler: Handler) -> None:
        self.counters["vanished"] += 1
        self._go_away(handler, "vanished")
        handler.save()

    def _expire(self, handler: Handler) -> None:
        self.counters["expired"] += 1
        handler.expire()
        handler.become("expired", self.env.wall())
        handler.save()
        self._after(handler, self.settings.remember, self._forget)

    def _forget(self, handler: Handler) -> None:
        stay = (handler.record.client, handler.record.epoch)
        if self.handlers.get(stay) is handler:
            del self.handlers[stay]
            epochs = self._epochs[handler.record.client]
            epochs.discard(handler.record.epoch)
            if not epochs:
                del self._epochs[handler.record.client]
            self._leaving.pop(stay, None)
            self._arriving.pop(stay, None)
        handler.erase()

    # Collecting

    def _fetch(self, asker: Asker, client: str, question: Fetch) -> None:
        # Known before it is answered: a move-in that is still under way comes too late.
        self._claim(client, question.claim)
        handler = self.handlers.get((client, question.stay))
        if handler is None:
            self._tell(asker, Batch(call=asker.call, state=State.UNKNOWN))
            return
        if question.stop:
            handler.quit()
        self._tell(asker, handler.batch(question))

    def _release(self, asker: Asker, client: str, question: Release) -> None:
        self._claim(client, question.claim)
        handler = self.handlers.get((client, question.stay))
        if handler is not None and handler.claim < question.claim:
            self._forget(handler)
        # Batches become durable in order: this one after the erasing, whoever asked for that.
        self.env.storage.write({}, lambda: self._tell(asker, Released(call=asker.call)))

    def _claim(self, client: str, claim: Claim) -> None:
        """The client moved in somewhere with that claim: it is not where it was before."""
        known = self._claims.get(client)
        if known is not None and known >= claim:
            return
        self._claims.pop(client, None)
        self._claims[client] = claim
        changes: dict[bytes, bytes | None] = {
            _CLAIM + bytes.fromhex(client): msgspec.msgpack.encode(tuple(claim))
        }
        if len(self._claims) > self.settings.handlers:
            oldest = next(iter(self._claims))
            del self._claims[oldest]
            changes[_CLAIM + bytes.fromhex(oldest)] = None
        self.env.storage.write(changes)
        for handler in self._of(client):
            if handler.claim < claim:
                if handler.state == "here":
                    self._go_away(handler, "seen elsewhere")
                    handler.save()
                self._tell_superseded(handler, claim)

    def _tell_superseded(self, handler: Handler, claim: Claim) -> None:
        """Who still listens there learns it now, and otherwise when it asks next."""
        if handler.peer:
            refusal = Refused(call=0, code=Code.SUPERSEDED, epoch=claim.epoch, nonce=claim.nonce)
            # Pages read JSON only, everybody else reads it, too.
            self._tell(Asker(handler.peer, 0, json=True), refusal)

    # Between proxies

    def _relay(self, asker: Asker, question: Fetch | Release) -> None:
        if not self._knows(question.proxy):
            self._refuse(asker, Refused(call=asker.call, code=Code.FORBIDDEN))
            return
        if len(self._relays) >= self.settings.relays:
            self._refuse(asker, Refused(call=asker.call, code=Code.BUSY))
            return
        self.counters["relayed"] += 1
        self._next_relay += 1
        number = self._next_relay
        timer = self.env.call_later(self.settings.relay_time, self._give_up, number)
        self._relays[number] = (asker, timer)
        self._send(question.proxy, encode(msgspec.structs.replace(question, call=number)))

    def _give_up(self, number: int) -> None:
        del self._relays[number]

    def _answered(self, answer: AnyMessage) -> None:
        found = self._relays.pop(answer.call, None)
        if found is not None and not isinstance(answer, Question):
            asker, timer = found
            timer.cancel()
            self._tell(asker, msgspec.structs.replace(answer, call=asker.call))

    # What all of these do

    def _add(self, record: Record) -> Handler:
        stay = (record.client, record.epoch)
        handler = self.handlers[stay] = Handler(self.env, self.pubsub, record)
        self._epochs.setdefault(record.client, set()).add(record.epoch)

        def effective() -> None:
            self._welcome(stay)
            self._moved_out(stay)

        handler.on_effective = effective
        return handler

    def _of(self, client: str) -> list[Handler]:
        return [self.handlers[client, epoch] for epoch in sorted(self._epochs.get(client, ()))]

    def _has_room(self, client: str, question: MoveIn) -> bool:
        return (
            len(self.handlers) < self.settings.handlers
            and len(self._epochs.get(client, ())) < self.settings.handlers_per_client
            and len(question.topics) <= self.settings.topics
        )

    def _watch(self, handler: Handler) -> None:
        silence = int(handler.record.alive * SECOND) * self.settings.silence
        self._after(handler, silence, self._vanished)

    def _after(self, handler: Handler, delay: int, then: Callable[[Handler], None]) -> None:
        if handler.timer is not None:
            handler.timer.cancel()
        handler.timer = self.env.call_later(delay, then, handler)

    def _tell(self, asker: Asker, answer: AnyAnswer) -> None:
        self._send(asker.peer, encode(answer, json=asker.json))

    def _refuse(self, asker: Asker, refusal: Refused) -> None:
        self.counters["refused"] += 1
        self._tell(asker, refusal)
