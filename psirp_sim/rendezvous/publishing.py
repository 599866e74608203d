"""The publisher's side of matches: who listens, the way to them, and telling them so.

Each home of an item says who listens (`Matches`); a listener counts when any of them knows it,
so that neither a home that has lost its disk nor one that died makes a listener miss anything.
A listener that is new is told from which version on it gets everything (`Subscribed`), until it
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.rendezvous.trees import SharedTree, TreePool
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.rendezvous import Listener, Match, Matches, Subscribed, SubscribedTaken
from psirp_sim.zfilters import ZFilter

LISTENERS_AT_ONCE = 500
"""In one message."""
MOST_FAREWELLS = 10_000
"""Publications that have ended and whose listeners are still being told."""


class Base(NamedTuple):
    """From where on a listener gets everything: a place in the stream of a publisher."""

    publisher: bytes
    """The id in Positions, not the node."""
    epoch: int
    version: int
    """The latest; 0 before the first."""


@dataclass(slots=True)
class HomeSays:
    """The listeners that one home knows."""

    boot: int
    match: Match
    until: int | None = None
    """When it is forgotten, because the server is no home any more or has begun a new life."""


@dataclass(slots=True)
class Announcement:
    """A listener that does not know yet that it is subscribed."""

    listener: Listener
    base: Base | None
    number: int
    tries: int = 0
    due: int = 0


@dataclass(slots=True, eq=False)
class Publication:
    """An item this node publishes, and who listens to it."""

    sid: bytes
    rid: bytes
    base: Callable[[], Base | None]
    """The latest version."""
    changed: Callable[[Publication], None]
    """Called at START_PUBLISH, at STOP_PUBLISH, and when the listeners or filters change."""
    sequence: int = 0
    """Of the registration."""
    listeners: dict[str, Listener] = field(default_factory=dict)
    """By node, this one perhaps among them. Send nothing while there are none."""
    left: dict[str, tuple[Listener, int]] = field(default_factory=dict)
    """Listeners that were, and until when they may still think that they are."""
    said: dict[str, HomeSays] = field(default_factory=dict)
    """By server."""
    announcements: dict[str, Announcement] = field(default_factory=dict)
    tree: tuple[SharedTree, int] | None = None
    ended: int = 0
    """When it was withdrawn."""
    coming: tuple[SharedTree, int] | None = None
    """The tree to the present listeners while the manager has not answered yet."""

    @property
    def filters(self) -> list[ZFilter]:
        """The way to the listeners on other nodes."""
        return [] if self.tree is None else self.tree[0].filters

    @property
    def unreached(self) -> list[str]:
        """Listeners to which there is no path at present."""
        return [] if self.tree is None else self.tree[0].unreached


class Publishing:
    """The publications of one node."""

    def __init__(
        self,
        env: Environment,
        settings: RendezvousSettings,
        trees: TreePool,
        *,
        epoch: Callable[[], int],
        homes_of: Callable[[bytes, bytes], list[str]],
        send: Callable[[list[ZFilter], Message], None],
        at_home: Callable[[Subscribed], None],
    ) -> None:
        """`send` sends along filters; `at_home` tells a listener on this node."""
        self._env = env
        self._settings = settings
        self._trees = trees
        self._epoch = epoch
        self._homes_of = homes_of
        self._send = send
        self._at_home = at_home
        self.publications: dict[tuple[bytes, bytes], Publication] = {}
        self._announcing: dict[tuple[bytes, bytes], Publication] = {}
        """Those with listeners that do not know yet."""
        self._number = 0
        self._farewells: dict[int, Publication] = {}
        """Those that have ended, until their listeners know, or the length of a lease."""
        self._ageing: dict[tuple[bytes, bytes], Publication] = {}
        """Those of which a server said something that will be forgotten."""

    def start(self) -> None:
        self._env.call_later(self._settings.retry_interval, self._tick)

    def add(self, publication: Publication) -> None:
        """From now on matches of it count."""
        self.publications[publication.sid, publication.rid] = publication

    def remove(self, sid: bytes, rid: bytes) -> None:
        """It is not published any more: who listens is told."""
        publication = self.publications.pop((sid, rid), None)
        if publication is None:
            return
        self._announcing.pop((sid, rid), None)
        self._ageing.pop((sid, rid), None)
        self._number += 1
        publication.ended = now = self._env.now()
        # One that only seemed to have left, because a home had lost it, must hear of it too.
        left = {node: each for node, (each, until) in publication.left.items() if until > now}
        publication.announcements = {
            node: Announcement(listener, None, self._number)
            for node, listener in (left | publication.listeners).items()
        }
        if left:
            self._release(publication)
            publication.tree = self._trees.use(publication.announcements, lambda: None)
        self._farewells[self._number] = publication
        self._say_farewell(self._number, publication)

    # What the homes say

    def receive(self, message: Matches) -> list[tuple[bytes, bytes, int]]:
        """A home says who listens; what is to be confirmed."""
        for match in message.items:
            publication = self.publications.get((match.sid, match.rid))
            if publication is None or publication.sequence != match.sequence:
                continue
            said = publication.said.get(message.server)
            if said is not None and (said.boot, said.match.version) > (message.boot, match.version):
                continue
            publication.said[message.server] = HomeSays(message.boot, match)
            self._age(publication)
            self._merge(publication)
        return [(match.sid, match.rid, match.version) for match in message.items]

    def look(self) -> None:
        """The homes of our items may be others."""
        for publication in self.publications.values():
            if publication.said:
                self._age(publication)

    def restarted(self, server: str, boot: int) -> None:
        """What the server said in an earlier life than this may not be true any more."""
        for publication in self.publications.values():
            said = publication.said.get(server)
            if said is not None and said.boot < boot:
                self._let_age(publication, said)

    def _age(self, publication: Publication) -> None:
        homes = self._homes_of(publication.sid, publication.rid)
        for server, said in publication.said.items():
            if server not in homes:
                self._let_age(publication, said)

    def _let_age(self, publication: Publication, said: HomeSays) -> None:
        if said.until is None:
            said.until = self._env.now() + self._settings.settle
            self._ageing[publication.sid, publication.rid] = publication

    def _merge(self, publication: Publication) -> None:
        listeners: dict[str, Listener] = {}
        for said in publication.said.values():
            for listener in said.match.listeners:
                known = listeners.get(listener.node)
                if known is None or _rank(known) < _rank(listener):
                    listeners[listener.node] = listener
        if listeners == publication.listeners:
            return
        before, publication.listeners = publication.listeners, listeners
        for node in publication.announcements.keys() - listeners.keys():
            del publication.announcements[node]
        self._note_those_who_left(publication, before)
        base = publication.base()
        self._number += 1
        for node, listener in listeners.items():
            if before.get(node) != listener:
                since = _known_since(publication.announcements.get(node), listener, base)
                publication.announcements[node] = Announcement(listener, since, self._number)
        if publication.announcements:
            self._announcing[publication.sid, publication.rid] = publication
        if before.keys() != listeners.keys():
            self._find_the_way(publication)
        self._announce(publication)
        publication.changed(publication)

    def _note_those_who_left(self, publication: Publication, before: dict[str, Listener]) -> None:
        now = self._env.now()
        publication.left = {
            node: (each, until)
            for node, (each, until) in publication.left.items()
            if until > now and node not in publication.listeners
        }
        for node in before:
            if node not in publication.listeners:
                publication.left[node] = (before[node], now + self._settings.lease)

    # The way to the listeners

    def _find_the_way(self, publication: Publication) -> None:
        if publication.coming is not None:
            self._trees.release(*publication.coming)
            publication.coming = None
        others = [node for node in publication.listeners if node != self._env.node]
        if others:
            publication.coming = self._trees.use(others, lambda: self._way_changed(publication))
        elif publication.tree is not None:
            self._trees.release(*publication.tree)
            publication.tree = None
        self._change_over(publication)

    def _change_over(self, publication: Publication) -> None:
        """Until the new way is known the old one serves those who were there before."""
        coming = publication.coming
        if coming is not None and (coming[0].answered or publication.tree is None):
            if publication.tree is not None:
                self._trees.release(*publication.tree)
            publication.tree, publication.coming = coming, None

    def _way_changed(self, publication: Publication) -> None:
        if publication.ended:
            return
        self._change_over(publication)
        for announcement in publication.announcements.values():
            announcement.due = 0
        self._announce(publication)
        publication.changed(publication)

    # Telling listeners

    def taken(self, message: SubscribedTaken) -> None:
        """A listener knows."""
        key = (message.sid, message.rid)
        publication = self._farewells.get(message.number) or self._announcing.get(key)
        if publication is None:
            if key not in self.publications:
                self._say_that_it_ended(message)
            return
        announcement = publication.announcements.get(message.listener.node)
        if announcement is None or announcement.number != message.number:
            return
        del publication.announcements[message.listener.node]
        if not publication.announcements:
            if publication.ended:
                self._say_farewell(message.number, publication)
            else:
                del self._announcing[key]

    def _say_that_it_ended(self, message: SubscribedTaken) -> None:
        """Somebody thinks that it still listens to what we do not publish any more."""
        node = message.listener.node
        known = any(
            node in each.announcements and (each.sid, each.rid) == (message.sid, message.rid)
            for each in self._farewells.values()
        )
        if known or len(self._farewells) >= MOST_FAREWELLS:
            return
        self._number += 1
        ended = Publication(message.sid, message.rid, lambda: None, lambda publication: None)
        ended.ended = self._env.now()
        ended.announcements[node] = Announcement(message.listener, None, self._number)
        if node != self._env.node:
            ended.tree = self._trees.use([node], lambda: None)
        self._farewells[self._number] = ended
        self._say_farewell(self._number, ended)

    def _tick(self) -> None:
        self._env.call_later(self._settings.retry_interval, self._tick)
        now = self._env.now()
        for key, publication in list(self._ageing.items()):
            if key in self._ageing:  # what is told of a change may withdraw another
                self._forget_what_is_outdated(publication, now)
        for publication in list(self._announcing.values()):
            self._announce(publication)
        for number, publication in list(self._farewells.items()):
            self._say_farewell(number, publication)

    def _say_farewell(self, number: int, publication: Publication) -> None:
        self._announce(publication)
        over = self._env.now() >= publication.ended + self._settings.lease
        if not publication.announcements or over:
            del self._farewells[number]
            self._release(publication)

    def _release(self, publication: Publication) -> None:
        for held in (publication.tree, publication.coming):
            if held is not None:
                self._trees.release(*held)
        publication.tree = publication.coming = None

    def _forget_what_is_outdated(self, publication: Publication, now: int) -> None:
        ageing = {s: said for s, said in publication.said.items() if said.until is not None}
        # While no present home has said anything, listeners may still be on their way to them.
        silent = len(ageing) == len(publication.said)
        patience = self._settings.lease if silent else 0
        for server, said in ageing.items():
            assert said.until is not None
            if said.until + patience <= now:
                del publication.said[server]
        if not any(said.until is not None for said in publication.said.values()):
            self._ageing.pop((publication.sid, publication.rid), None)
        if ageing:
            self._merge(publication)

    def _announce(self, publication: Publication) -> None:
        now = self._env.now()
        alike: dict[tuple[int, Base | None], list[Listener]] = {}
        for node, announcement in publication.announcements.items():
            if announcement.due > now or not (publication.filters or node == self._env.node):
                continue
            announcement.due = now + self._settings.pause(announcement.tries)
            announcement.tries += 1
            kind = (announcement.number, announcement.base)
            alike.setdefault(kind, []).append(announcement.listener)
        for (number, base), listeners in alike.items():
            for start in range(0, len(listeners), LISTENERS_AT_ONCE):
                message = Subscribed(
                    self._env.node,
                    self._epoch(),
                    number,
                    publication.sid,
                    publication.rid,
                    base,
                    tuple(listeners[start : start + LISTENERS_AT_ONCE]),
                    ended=bool(publication.ended),
                )
                self._to_listeners(publication, message)

    def _to_listeners(self, publication: Publication, message: Subscribed) -> None:
        if any(listener.node == self._env.node for listener in message.listeners):
            self._env.call_later(0, self._at_home, message)
        if publication.filters:
            self._send(publication.filters, message)


def _known_since(before: Announcement | None, listener: Listener, base: Base | None) -> Base | None:
    """From where on a listener gets everything: a node that has not heard yet of an earlier
    subscription of its own must not miss what that one was promised."""
    if before is None or before.base is None or base is None:
        return base
    same = before.listener.epoch == listener.epoch and before.base[:2] == base[:2]
    return before.base if same else base


def _rank(listener: Listener) -> tuple[int, int]:
    return listener.epoch, listener.sequence
