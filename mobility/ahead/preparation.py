"""The pro-active part of a proxy: a client's context is where it goes next before it goes.

The proxy tells it whatever changes about a stay (`reconsider`), hands it the words of other proxies
(`receive`), and lets it look at what comes back when a client collects (`brought_back`). It never
says anything to clients and never changes what a proxy promised them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mobility.ahead.contexts import Answer, Contexts
from mobility.ahead.conversation import Conversation
from mobility.ahead.lines import Line
from mobility.ahead.neighbours import Neighbours
from mobility.ahead.preparing import Preparing
from mobility.ahead.waiting import Warm
from mobility.ahead.words import MOST_NEIGHBOURS, AnyChange, Came, Change, Copy, Drop, Held, Mark
from mobility.ahead.words import Contexts as ContextsWord
from mobility.calls import Send
from mobility.claims import Claims
from mobility.handler import Handler
from mobility.identity import Claim, client_id
from mobility.messages import AnyAnswer, Batch, Fetch, Release, Released, State
from mobility.port import PubSub
from mobility.service import Mode
from mobility.settings import ProxySettings
from mobility.stays import Stay, Stays
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer

_ROOM = b"mobility/ahead/"
_COUNTED = (
    "prepared", "unprepared", "copies_sent", "activations_sent", "contexts_refused", "deactivated",
    "words_sent", "word_bytes_sent", "wrong_passes", "given_up",
    "refusals", "shed", "lapsed", "bytes_adopted", "bytes_in_vain",
)  # fmt: skip


@dataclass(slots=True)
class _Origin:
    """Where the client of a stay came from."""

    prepared: bool = False
    crossed: bool = False
    """The edge to the proxy before is known."""
    told: set[str] = field(default_factory=set)
    """Proxies that are told that the client is here."""


class Preparation:
    """Of one proxy. Off, it does nothing, and clears what an earlier life had."""

    def __init__(
        self,
        env: Environment,
        name: str,
        pubsub: PubSub,
        send: Send,
        settings: ProxySettings,
        knows: Callable[[str], bool],
        claims: Claims,
        stays: Stays,
    ) -> None:
        self.env = env
        self.settings = settings.ahead
        self.on = self.settings.on
        self.counters = dict.fromkeys(_COUNTED, 0)
        self.conversation = Conversation(env, name, send, self.settings, knows, self.counters, self)
        self.neighbours = Neighbours(env, self.settings, self._lost)
        self.contexts = Contexts(env, pubsub, self.settings, settings.most, claims, self.counters)
        self.preparing = Preparing(
            env, self.settings, self.counters, lambda: self.neighbours.names, self._line
        )
        self._claims = claims
        self._stays = stays
        self._origins: dict[Stay, _Origin] = {}
        self._elsewhere: dict[Stay, Claim] = {}
        """Stays whose clients came to another proxy with these claims, as that one says."""
        self._warm: dict[Stay, tuple[Warm, int]] = {}
        """Subscriptions made for clients before they came, and when they came."""
        self._early: dict[Stay, str] = {}
        """Stays that have not begun yet, and where their clients came from."""
        self._timer: Timer | None = None

    # The core's side

    def start(self) -> None:
        """After the stays have been restored."""
        if not self.on:
            left = {key: None for key, _ in self.env.storage.scan(_ROOM)}
            if left:
                self.env.storage.write(left)
            return
        self.neighbours.restore()
        self.contexts.restore()
        for handler in list(self._stays.handlers.values()):
            self.reconsider(handler)
        self._wind()

    def stop(self) -> None:
        self.contexts.stop()
        self.conversation.close()
        for stay in list(self._warm):
            self._cool(stay)

    # What the proxy tells

    def moved_in(self, handler: Handler) -> str:
        """A client came: it gets what was prepared. By which proxy that was, if anything was."""
        if not self.on or handler.record.service.mode is not Mode.POSITION:
            return ""
        stay = _stay_of(handler)
        origin = self._origins[stay] = _Origin()
        early = self._early.pop(stay, None)
        found = self.contexts.take(handler)
        if found is not None and found.waiting is not None:
            origin.prepared = True
            self._warm[stay] = (found.waiting.warm, self.env.now())
            self.counters["prepared"] += 1
        if found is not None:
            self._came(handler, found.owner, found.copy.epoch + 1 == stay[1])
        if early is not None:
            self._came(handler, early, directly=True)
        return found.owner if found is not None and origin.prepared else ""

    def is_prepared(self, handler: Handler) -> bool:
        """Whether it has inherited anything."""
        origin = self._origins.get(_stay_of(handler))
        return origin is not None and origin.prepared

    def reconsider(self, handler: Handler) -> None:
        """Something about a stay has changed."""
        record = handler.record
        if not self.on or record.service.mode is not Mode.POSITION:
            return
        if handler.state != "here":
            self._cool(_stay_of(handler))
        kept, stay = self._stays.knows(handler), _stay_of(handler)
        elsewhere = self._elsewhere.get(stay)
        if not kept:
            self._origins.pop(stay, None)
            self._elsewhere.pop(stay, None)
        if any(each.claim > handler.claim for each in self._stays.of(record.client)):
            return
        above = self._claims.above(record.client, handler.claim) or elsewhere
        if above is not None:
            self.preparing.moved_on(record.client, above)
        elif handler.state == "expired" or not kept:
            self.preparing.end(record.client)
        else:
            self.preparing.propagate(
                record.client,
                handler.claim,
                record.topics,
                record.service,
                active=handler.state == "away",
            )
        self._wind()

    def is_old(self, change: Change) -> bool:
        """Whether the client is known to have moved in somewhere since."""
        return self._claims.above(change.client, change.claim) is not None

    def arrived(self, handler: Handler) -> None:
        """The client has everything, by subscriptions of its own."""
        self._cool(_stay_of(handler))

    def brought_back(self, question: Fetch | Release, answer: AnyAnswer) -> None:
        """Another proxy answered a client that is here, or is about to be."""
        client = client_id(question.secret)
        if not self.on or not _was_there(answer) or self._claims.above(client, question.claim):
            return
        directly = question.stay + 1 == question.epoch
        handler = self._stays.handlers.get((client, question.epoch))
        if handler is not None and handler.claim == question.claim:
            self._came(handler, question.proxy, directly)
        elif directly:
            self._early[client, question.epoch] = question.proxy
            self._wind()

    def under_pressure(self, is_so: bool) -> None:
        """While it is, nothing new is kept for others, and no buffer of theirs at all."""
        self.contexts.refusing = is_so
        if is_so:
            self.contexts.shed_all()

    def _came(self, handler: Handler, name: str, directly: bool) -> None:
        """The client of that stay was at another proxy before; directly: just before."""
        origin = self._origins.get(_stay_of(handler))
        if origin is None:
            return
        if directly and not origin.crossed:
            origin.crossed = True
            self.counters["unprepared"] += not origin.prepared
            self._cross(name, came=True)
        if name not in origin.told:
            origin.told.add(name)
            self.preparing.came(handler.record.client, handler.claim, name, directly)

    def _cross(self, name: str, came: bool) -> None:
        if self.neighbours.crossed(name, came=came):
            self.preparing.meet(name)
        self._wind()

    def _cool(self, stay: Stay) -> None:
        warm, _ = self._warm.pop(stay, (None, 0))
        if warm is not None:
            warm.cool()

    # What other proxies say

    @property
    def table(self) -> tuple[str, ...]:
        """Its neighbours."""
        return self.neighbours.names[:MOST_NEIGHBOURS]

    def receive(self, peer: str, packet: bytes) -> bool:
        """A word of another proxy, or its answer to one; False when it is neither."""
        return self.on and self.conversation.receive(peer, packet)

    def change(self, word: ContextsWord) -> Held:
        """Changes of another proxy's contexts."""
        answers: dict[Answer, list[str]] = {each: [] for each in Answer}
        for change in word.changes:
            if isinstance(change, Copy):
                answers[self.contexts.copy(word.proxy, change)].append(change.client)
            elif isinstance(change, Mark):
                answers[self.contexts.mark(word.proxy, change)].append(change.client)
            elif isinstance(change, Drop):
                answers[self.contexts.drop(change)].append(change.client)
        came = [each for each in word.changes if isinstance(each, Came)]
        if came:
            self._went(word, [each for each in came if each.client in self._claims])
        self._wind()
        return Held(
            call=word.call,
            lacking=tuple(answers[Answer.LACKING]),
            refused=tuple(answers[Answer.REFUSED]),
            neighbours=self.table if came else (),
        )

    def _went(self, word: ContextsWord, came: list[Came]) -> None:
        """Clients that were here are at the proxy that says so."""
        for each in came:
            for handler in self._stays.of(each.client):
                if handler.claim < each.claim:
                    self._elsewhere[_stay_of(handler)] = each.claim
            # First of all, while whoever that neighbour may take the place of is still one.
            self.preparing.went(each.client, each.claim, word.proxy, word.neighbours)
        for each in came:
            if each.directly:
                self._cross(word.proxy, came=False)
        self.neighbours.told(word.proxy, word.neighbours)

    def answered(self, name: str, changes: list[AnyChange], held: Held) -> None:
        """To what this proxy said."""
        if held.neighbours:
            self.neighbours.told(name, held.neighbours)
        self.preparing.answered(name, changes, held)

    def gave_up(self, name: str) -> None:
        """It does not answer."""
        self.counters["given_up"] += 1
        self.preparing.gave_up(name)

    def _line(self, name: str) -> Line:
        line = self.conversation.line(name)
        self._wind()
        return line

    def _lost(self, name: str) -> None:
        self.preparing.part(name)

    # Time

    def _wind(self) -> None:
        """Have a look from time to time, while there is anything to look at."""
        busy = self.neighbours.known or self.contexts.remembers or self.conversation.lines
        if self._timer is None and (busy or self._warm or self._early):
            self._timer = self.env.call_later(self.settings.renewal, self._look)

    def _look(self) -> None:
        self._timer = None
        self.neighbours.grow_old()
        self.contexts.grow_old()
        self.preparing.renew()
        self._early.clear()
        for stay, (_, since) in list(self._warm.items()):
            # It should have arrived by now; perhaps it did so before this proxy knew it.
            if self.env.now() - since > self.settings.retry_most:
                self._cool(stay)
        self.conversation.clear()
        self._wind()

    # For those who run it

    def status(self) -> dict[str, object]:
        """What is known, kept and was done."""
        active = self.contexts.active
        return {
            "on": self.on,
            "neighbours": [
                {
                    "proxy": each.name,
                    "used_s": max(0, self.env.wall() - each.used) / SECOND,
                    "came": each.came,
                    "went": each.went,
                    "neighbours": list(each.neighbours),
                }
                for each in reversed(self.neighbours.known.values())
            ],
            "prepared_clients": len(self.preparing.clients),
            "contexts": {"passive": len(self.contexts) - active, "active": active},
            "context_bytes": self.contexts.bytes,
            "topics": {"buffered": self.contexts.topics, "warm": len(self.contexts.warmth)},
            "untold": sum(map(len, self.conversation.lines.values())),
            "counters": dict(self.counters),
        }


def _stay_of(handler: Handler) -> Stay:
    return handler.record.client, handler.record.epoch


def _was_there(answer: AnyAnswer) -> bool:
    """Whether the proxy that answered so kept something of the client's."""
    if isinstance(answer, Batch):
        return answer.state is State.KEPT
    return isinstance(answer, Released) and answer.kept
