"""The mobility proxy: a core (see `psirp_sim.runtime.environment`), one at each access point.

It answers clients, keeps a handler for each stay, and passes on what is for another proxy. Two
proxies talk only when a client collects, through the new one, what the old one kept.

Everything a client asks may come twice, late or out of order: a question is answered from the state
that it finds, and changes nothing when it was answered before. What is acknowledged is durable.
"""

from __future__ import annotations

from collections.abc import Callable

from mobility.ahead.preparation import Preparation
from mobility.calls import Send
from mobility.claims import Claims
from mobility.handler import Handler, Record
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
from mobility.relaying import Asker, Relays
from mobility.settings import ProxySettings
from mobility.stays import Stays
from psirp_sim.runtime.environment import Environment


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
        self.counters = {
            "asked": 0, "malformed": 0, "refused": 0, "relayed": 0, "vanished": 0, "expired": 0,
        }  # fmt: skip
        self._send = send
        self._knows = knows
        self._claims = Claims(env, self.settings.handlers)
        self._relays = Relays(env, send, self.settings.relays, self.settings.relay_time)
        self._stays = Stays(env, pubsub, self.settings, self.counters, self._effective)
        self.handlers = self._stays.handlers
        """By client id and epoch."""
        self.ahead = Preparation(
            env, name, pubsub, send, self.settings, knows, self._claims, self._stays
        )
        self._stays.changed = self.ahead.reconsider

    # The core's side

    def start(self) -> None:
        self._claims.restore()
        self._stays.restore()
        self.ahead.start()

    def stop(self) -> None:
        self.ahead.stop()
        for handler in self.handlers.values():
            handler.quit()

    def receive(self, peer: str, packet: bytes) -> None:
        """A message of that peer: a client, or another proxy."""
        try:
            message = read(packet)
        except MalformedMessage:
            if not self.ahead.receive(peer, packet):
                self.counters["malformed"] += 1
            return
        if isinstance(message, Question):
            self.counters["asked"] += 1
            self._asked(Asker(peer, message.call, is_json(packet)), message)
        else:
            question = self._relays.bring_back(message)
            if question is not None:
                self.ahead.brought_back(question, message)

    def connection_lost(self, client: str, peer: str) -> None:
        """The transport says that this client is not at the other end of `peer` any more."""
        for handler in self._stays.of(client):
            if handler.peer == peer and handler.state == "here":
                self._stays.vanish(handler)

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
        known = self._claims.above(client, question.claim)
        if known is not None:
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
            if handler.record.final and not isinstance(question, MoveOut):
                self._tell(asker, Heard(call=asker.call))
            elif isinstance(question, MoveOut):
                self._move_out(asker, handler, question)
            elif isinstance(question, Alive):
                self._alive(asker, handler, question)
            elif isinstance(question, Arrived):
                self._arrived(asker, handler, question)

    def _move_in(self, asker: Asker, client: str, question: MoveIn) -> None:
        handler = self.handlers.get((client, question.epoch))
        if handler is None or handler.claim != question.claim:
            if not self._stays.have_room(client, len(question.topics)):
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
                asked=question.call,
            )
            handler = self._stays.add(record)
            handler.since = question.since
            prepared_by = self.ahead.moved_in(handler)
            handler.trace_id = self._stays.tracing.move_in_begin(client, prepared_by)
        handler.peer = asker.peer
        if handler.record.final:
            return
        handler.list_topics(question.call, question.topics, {})  # it may come again after an expiry
        handler.stand_by()
        self._stays.come_back(handler)

        def durable() -> None:
            handler.to_welcome = asker
            self._effective(handler)
            self.ahead.reconsider(handler)

        handler.save(durable)

    def _effective(self, handler: Handler) -> None:
        """Answer who waited for the handler to be durable and its subscriptions in effect."""
        if not handler.effective or not self._stays.knows(handler):
            return
        if handler.to_welcome is not None:
            asker, handler.to_welcome = handler.to_welcome, None
            report = not all(map(handler.left_to_history, handler.record.topics))
            answer = Welcome(
                call=asker.call,
                service=handler.record.service,
                report=report,
                prepared=self._first_batch(handler),
            )
            self._tell(asker, answer)
        if handler.to_dismiss is not None:
            asker, handler.to_dismiss = handler.to_dismiss, None
            self._tell(asker, MovedOut(call=asker.call))

    def _first_batch(self, handler: Handler) -> Batch | None:
        """What a client that was expected gets with its Welcome."""
        if not handler.trace_id or not self.ahead.is_prepared(handler) or not len(handler.buffer):
            return None
        return handler.first_batch(self.settings.ahead.welcome)

    def _alive(self, asker: Asker, handler: Handler, question: Alive) -> None:
        changed = bool(question.topics or question.gone)
        if changed:
            known = len({*handler.record.topics, *question.topics})
            if known > self.settings.topics:
                self._refuse(asker, Refused(call=asker.call, code=Code.BUSY))
                return
            handler.update(question.call, question.topics, question.gone)
            handler.stand_by()
            self.ahead.reconsider(handler)
        self._stays.come_back(handler)
        if changed:
            handler.save(lambda: self._tell(asker, Heard(call=asker.call)))
        else:
            self._tell(asker, Heard(call=asker.call))

    def _arrived(self, asker: Asker, handler: Handler, question: Arrived) -> None:
        if handler.trace_id:
            self._stays.tracing.move_in_end(
                handler.record.client,
                handler.trace_id,
                question.bytes,
                question.peer,
                question.reason or None,
            )
            handler.trace_id = ""
        self.ahead.arrived(handler)
        self._stays.come_back(handler)
        self._tell(asker, Heard(call=asker.call))

    # Going

    def _move_out(self, asker: Asker, handler: Handler, question: MoveOut) -> None:
        handler.list_topics(question.call, question.topics, question.gone)
        handler.dismiss()
        self._stays.go_away(handler, None)
        handler.take_over()  # of topics that are new, if it was away already
        self.ahead.reconsider(handler)

        def durable() -> None:
            handler.to_dismiss = asker
            self._effective(handler)

        handler.save(durable)

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
        kept = handler is not None and handler.claim < question.claim
        if handler is not None and kept:
            self._stays.forget(handler)
        answer = Released(call=asker.call, kept=kept)
        # Batches become durable in order: this one after the erasing, whoever asked for that.
        self.env.storage.write({}, lambda: self._tell(asker, answer))

    def _claim(self, client: str, claim: Claim) -> None:
        """The client moved in somewhere with that claim: it is not where it was before."""
        if not self._claims.learn(client, claim):
            return
        for handler in self._stays.of(client):
            if handler.claim < claim:
                if handler.state == "here":
                    self._stays.go_away(handler, "seen elsewhere")
                    handler.save()
                self._tell_superseded(handler, claim)
                self.ahead.reconsider(handler)

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
        if self._relays.full:
            self._refuse(asker, Refused(call=asker.call, code=Code.BUSY))
            return
        self.counters["relayed"] += 1
        self._relays.pass_on(asker, question)

    # What all of these do

    def _tell(self, asker: Asker, answer: AnyAnswer) -> None:
        self._send(asker.peer, encode(answer, json=asker.json))

    def _refuse(self, asker: Asker, refusal: Refused) -> None:
        self.counters["refused"] += 1
        self._tell(asker, refusal)
