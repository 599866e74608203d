"""What proxies say to each other about contexts is overheard here, and must be in order.

Like the model of what clients consume it is the harness's own account: of who was told what, and of
what must follow from it. None of it matters to a client, and so none of it would be noticed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mobility.ahead.contexts import Context
from mobility.ahead.words import AnyReply, AnyWord, Came, Contexts, Copy, Drop, Held, Order, read
from mobility.identity import Claim, client_id
from mobility.messages import Alive, MalformedMessage, MoveIn, MoveOut
from mobility.messages import read as read_message
from mobility.proxy import MobilityProxy
from psirp_sim.runtime.schedules import InvariantViolated

if TYPE_CHECKING:
    from mobility.suite.proactive import ProactiveTrial

Told = tuple[str, str, str]
"""Who told whom about which client."""


class _Went(NamedTuple):
    claim: Claim
    neighbours: tuple[str, ...]
    serial: int
    """What the proxy decides from now on has a higher one."""


class Witness:
    """Of one trial."""

    def __init__(self, trial: ProactiveTrial) -> None:
        self._trial = trial
        self.told: dict[Told, Copy] = {}
        """The last copy, where no drop has followed, and which is not left to another proxy."""
        self._left: set[tuple[Told, Order]] = set()
        """Copies that are; they may be said again."""
        self.tables: dict[tuple[str, str], _Went] = {}
        """By proxy and client: where it went, as the proxy was told."""
        self._heirs: dict[Told, Claim] = {}
        """The claim under which a client went to a proxy that has the same neighbour: what the
        first has yet to tell that neighbour of earlier ones is left to the second, wherever the
        client goes then."""
        self._reported: dict[tuple[str, str, Claim], set[str]] = {}
        """By proxy, client and claim: topics of which the proxy knows where the client is."""
        self._buried: dict[tuple[str, str], tuple[Order, int]] = {}
        """By proxy and client: what was dropped there, and when."""
        self._deceased: dict[str, dict[str, Context]] = {}
        """By proxy: what its present life keeps, or its last one kept."""
        self._asked: dict[tuple[str, str, int], dict[str, Order]] = {}
        """By proxy, who asked and call: the copies in a word."""
        self._confirmed: dict[tuple[str, str], Order] = {}
        """By proxy and client: the copy that it said to keep."""

    # A proxy's life

    def born(self, name: str, proxy: MobilityProxy) -> None:
        """A proxy has started: what it confirmed before is still there."""
        kept = proxy.ahead.contexts.kept
        for client, context in self._deceased.get(name, {}).items():
            confirmed = self._confirmed.get((name, client)) == context.copy.order
            if confirmed and client not in kept and not proxy.ahead.is_old(context.copy):
                raise InvariantViolated(f"{name} confirmed a context, and a crash took it")
        self._deceased[name] = kept
        for key in [each for each in self.told if each[0] == name]:
            del self.told[key]  # it cannot know any more whom it told
        for heir in [each for each in self._heirs if each[0] == name]:
            del self._heirs[heir]
        for table in [each for each in self.tables if each[0] == name]:
            del self.tables[table]  # nor what it was told
        for buried in [each for each in self._buried if each[0] == name]:
            del self._buried[buried]

    def disk_lost(self, name: str) -> None:
        self._deceased.pop(name, None)

    # What it says

    def says(self, name: str, proxy: MobilityProxy, peer: str, packet: bytes) -> None:
        word = _read(packet)
        if isinstance(word, Held):
            asked = self._asked.pop((name, peer, word.call), {})
            for client in asked.keys() - {*word.refused, *word.lacking}:
                self._confirmed[name, client] = asked[client]
        if not isinstance(word, Contexts):
            return
        if any(secret in packet for secret in self._trial.secrets.values()):
            raise InvariantViolated(f"{name} tells {peer} the secret of a client")
        for change in word.changes:
            key = (name, peer, change.client)
            if isinstance(change, Copy):
                heir = self._heirs.get(key)
                if heir is not None and not change.active and change.claim < heir:
                    self.told.pop(key, None)
                elif (key, change.order) not in self._left:
                    self.told[key] = change
                self._leave(name, change.client)
                known = self._reported.get((name, change.client, change.claim), set())
                anew = {topic for _, topic in self._trial.dropped}  # it may begin again
                lost = [t for t, at in change.topics.items() if at is None and t in known - anew]
                if change.active and lost and len(lost) == len(change.topics):
                    raise InvariantViolated(f"{name} activates at {peer} without any Position")
            elif isinstance(change, Drop):
                self.told.pop(key, None)
                went = self.tables.get((name, change.client))
                late = went is None or change.serial <= went.serial or change.claim >= went.claim
                if went is not None and peer in went.neighbours and not late:
                    raise InvariantViolated(f"{name} lets {peer} forget, a neighbour of both")

    # What it hears

    def hears(self, name: str, proxy: MobilityProxy, peer: str, packet: bytes) -> None:
        """Hands it to the proxy, and looks at what becomes of it."""
        word = _read(packet)
        if not isinstance(word, Contexts):
            self._listen(name, packet)
            proxy.receive(peer, packet)
            return
        ahead = proxy.ahead
        if ahead.conversation.passes.give(word.proxy) != word.token:
            before = (dict(ahead.contexts.kept), ahead.neighbours.names)
            proxy.receive(peer, packet)
            if before != (ahead.contexts.kept, ahead.neighbours.names):
                raise InvariantViolated(f"{name} believes {peer}, who has no pass")
            return
        copies = {each.client: each.order for each in word.changes if isinstance(each, Copy)}
        self._asked[name, peer, word.call] = copies
        orders = {client: context.copy.order for client, context in ahead.contexts.kept.items()}
        for change in word.changes:
            if isinstance(change, Came):
                self.told.pop((name, word.proxy, change.client), None)  # it has taken that copy
                known = self.tables.get((name, change.client))
                if known is None or known.claim < change.claim:
                    went = _Went(change.claim, word.neighbours, ahead.preparing.serial)
                    self.tables[name, change.client] = went
                    self._leave(name, change.client)
            elif isinstance(change, Drop):
                order, _ = self._buried.get((name, change.client), (change.order, 0))
                now = self._trial.world.now
                self._buried[name, change.client] = (max(order, change.order), now)
        proxy.receive(peer, packet)
        for client, context in ahead.contexts.kept.items():
            if context.copy.order < orders.get(client, context.copy.order):
                raise InvariantViolated(f"{name}: a later context gave way to an earlier one")
            order, since = self._buried.get((name, client), ((0, 0, 0), 0))
            lapsed = since + ahead.settings.lapse // 2 < self._trial.world.now
            if context.copy.order <= order and not lapsed:
                raise InvariantViolated(f"{name}: a context that was dropped is back")

    def _listen(self, name: str, packet: bytes) -> None:
        try:
            message = read_message(packet)
        except MalformedMessage:
            return
        if isinstance(message, MoveIn | Alive | MoveOut):
            stay = (name, client_id(message.secret), message.claim)
            known = self._reported.setdefault(stay, set())
            known.update(topic for topic, places in message.topics.items() if places)

    # What is left

    def _leave(self, name: str, client: str) -> None:
        """What is passive at a neighbour of both is the other proxy's from now on."""
        went = self.tables.get((name, client))
        if went is not None:
            for neighbour in went.neighbours:
                self._heirs[name, neighbour, client] = went.claim
                copy = self.told.get((name, neighbour, client))
                if copy is not None and not copy.active and copy.claim < went.claim:
                    del self.told[name, neighbour, client]
                    self._left.add(((name, neighbour, client), copy.order))

    def untold(self, client: str, place: str) -> str | None:
        """Who has not been told that the client is elsewhere."""
        for owner, neighbour, about in self.told:
            if about == client and place not in (owner, neighbour):
                return f"{owner} never told {neighbour} that a client went to {place}"
        return None


def _read(packet: bytes) -> AnyWord | AnyReply | None:
    try:
        return read(packet)
    except MalformedMessage:
        return None
