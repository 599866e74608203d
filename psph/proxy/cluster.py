"""The proxies that serve the same hosts: who is there, and who has which topic.

Each says so in a publication within its zone's own scope, signed with the zone's key, whenever
something changes and every third of a lease. A topic belongs to one of those that are there: by
highest random weight among those of the lowest priority, so that everybody comes to the same
answer, and the topics of one that dies are spread over the others. That is only where a topic
should be; who publishes it is decided by the writer lease alone.

A proxy that has versions which only it can publish says that it has news of the topic: the holder
hands the lease over. A ping for a topic that another one writes is passed on to it.

A proxy that knows no other one of a host needs no lease (`Standing`). It listens to the item it
announces itself on: once its own announcement has come back, the rendezvous has told the others
that it listens, and a proxy that does not answer soon is not there. Two that cannot hear each other
may both come to that conclusion; `own_topics` says why nothing is lost then. Once it hears of
another, it publishes nothing without a lease, and announces that: a lease is asked for only when
every other proxy of the host that is there has `met` us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

import msgspec

from bootstrap.selection import score
from identifiers import (
    Position,
    PublisherId,
    RendezvousId,
    ScopeId,
    Topic,
    members_item_id,
    scope_id,
)
from identifiers.zones import zone_of_host
from psirp_sim.client import Client
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.events import Event, Update
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment, Timer
from psph.proxy.gathering import Soon
from psph.proxy.messages import (
    LARGEST,
    MOST_HOSTS,
    MOST_MEMBERS,
    MOST_TOPICS,
    MalformedMessage,
    Membership,
    encode,
    read_membership,
)
from psph.proxy.settings import ProxySettings

PREFIX = b"member "
REMEMBERED = 7 * 86_400 * SECOND
"""How long somebody who is not there may come back: until then their turn is waited for."""
NOTED = 3_600 * SECOND
"""How often it is written down that somebody is there."""


class Standing(Enum):
    """What a proxy knows of the others of a host.

    | from    | to     | when                                                               |
    |---------|--------|--------------------------------------------------------------------|
    | PROBING | ALONE  | our announcement came back, and none answered within `probe`       |
    | any     | SHARED | the announcement of another proxy of the host came, or is remembered |
    | SHARED  | ALONE  | none of them was heard of for `REMEMBERED`                         |
    """

    PROBING = auto()
    """Others may be there. Topics may be written with a lease."""
    ALONE = auto()
    """We know of no other. Topics are written without a lease."""
    SHARED = auto()
    """There are others, now or lately. Topics are written with a lease."""


class Remembered(msgspec.Struct, frozen=True, array_like=True):
    """One that was there, whether it is now or not; durable."""

    publisher: str
    hosts: list[str]
    heard: int
    """When, by the wall clock."""


@dataclass(slots=True, eq=False)
class Member:
    """Another proxy of a zone of ours."""

    said: Membership
    end: Timer
    heard: int
    """When it last said so."""

    @property
    def publisher(self) -> PublisherId:
        """Who numbers updates at its hub."""
        return PublisherId(bytes.fromhex(self.said.publisher))

    def serves(self, host: str) -> bool:
        return _covers(self.said.hosts, host)


@dataclass(slots=True, eq=False)
class OwnZone:
    """A zone that a host of ours is in."""

    name: str
    sid: ScopeId
    item: RendezvousId
    pings: dict[str, None]
    """That the others are to be told of."""
    subscription: Subscription | None = None
    said: Position | None = None
    """Of our last announcement."""
    came_back: bool = False
    """Whether an announcement of this life has come back to us."""
    probed: bool = False
    """Whether others have had the time to answer since then."""
    soon: Soon = field(init=False)
    """To say what there is to say."""


class Cluster:
    """All proxies that we share hosts with."""

    def __init__(
        self,
        env: Environment,
        settings: ProxySettings,
        client: Client,
        counters: Counter[str],
        publisher: PublisherId,
        *,
        changed: Callable[[], None],
        pinged: Callable[[str, Callable[[], None]], None],
    ) -> None:
        """`publisher` numbers at our hub. `changed` is called when somebody came or went, or says
        something else; `pinged` with a topic that was, at the hub of another one, and what to call
        when that is seen to."""
        self._env = env
        self._settings = settings
        self._client = client
        self._counters = counters
        self._publisher = publisher
        self._changed = changed
        self._pinged = pinged
        self.members: dict[str, Member] = {}
        """The others, by the name of their node."""
        self._remembered: dict[str, Remembered] = {}
        self.news: dict[str, Topic] = {}
        """Topics whose writer lease we ask for."""
        self._zones: dict[str, OwnZone] = {}

    def start(self) -> None:
        """Say that we are there, and hear who else is."""
        for key, value in self._env.storage.scan(PREFIX):
            known = msgspec.msgpack.decode(value, type=Remembered)
            self._remembered[key[len(PREFIX) :].decode()] = known
        for name in sorted({zone_of_host(host) for host in self._settings.hosts}):
            sid = scope_id(name)
            zone = self._zones[name] = OwnZone(name, sid, members_item_id(sid), {})
            zone.soon = Soon(self._env, partial(self._say, zone))
            zone.subscription = self._client.subscribe(
                sid.raw,
                zone.item.raw,
                partial(self._heard, zone),
                durable="members",  # pings are said once
                by_hand=True,
                name="members",
            )
            self._say(zone)

    # Who has what

    def others(self, host: str) -> list[Member]:
        """Who else serves a host."""
        return [member for member in self.members.values() if member.serves(host)]

    def has_others(self, host: str) -> bool:
        """Whether somebody else serves a host, or did lately."""
        return any(_covers(each.hosts, host) for each in self._lately().values())

    def standing(self, topic: Topic) -> Standing:
        """Whether other proxies may write a topic of our hosts."""
        if self.has_others(topic.host):
            return Standing.SHARED
        zone = self._zones.get(topic.zone)
        return Standing.ALONE if zone is not None and zone.probed else Standing.PROBING

    def is_met(self, host: str) -> bool:
        """Whether all others of a host that are there know us, and so write nothing without a
        lease."""
        return all(self._env.node in each.said.met for each in self.others(host))

    @property
    def is_alone(self) -> bool:
        """Whether we are alone with all our hosts."""
        return all(zone.probed for zone in self._zones.values()) and not any(
            map(self.has_others, self._settings.hosts)
        )

    @property
    def item(self) -> tuple[bytes, bytes]:
        """Where one of our zones is announced."""
        zone = next(iter(self._zones.values()))
        return zone.sid.raw, zone.item.raw

    def _lately(self) -> dict[str, Remembered]:
        since = self._env.wall() - REMEMBERED
        return {name: each for name, each in self._remembered.items() if each.heard > since}

    def numbers(self, publisher: PublisherId) -> bool:
        """Whether updates that somebody numbered come from the hub of one of them."""
        text = publisher.raw.hex()
        return any(each.publisher == text for each in self._remembered.values())

    @property
    def met(self) -> set[str]:
        """The nodes of all others that we have heard of lately."""
        return set(self._lately())

    def belongs_to(self, topic: Topic) -> str:
        """The node that should write a topic, of those that are there."""
        settings, others = self._settings, self.others(topic.host)
        candidates = [(settings.priority, settings.weight, self._env.node)]
        candidates += [(each.said.priority, each.said.weight, each.said.node) for each in others]
        first = min(priority for priority, _, _ in candidates)
        _, node = max(
            (score(node, weight, topic.canonical), node)
            for priority, weight, node in candidates
            if priority == first
        )
        return node

    def claimant(self, topic: Topic) -> str | None:
        """Another one that asks for the lease of a topic, because it has news."""
        for member in self.others(topic.host):
            if topic.canonical in member.said.news:
                return member.said.node
        return None

    # What the others are told

    def claim(self, topic: Topic) -> None:
        """Ask for the writer lease of a topic: we have news of it."""
        if topic.canonical not in self.news:
            self.news[topic.canonical] = topic
            self._say_soon(topic.zone)

    def unclaim(self, topic: Topic) -> None:
        """We have it, or do not need it any more."""
        if self.news.pop(topic.canonical, None) is not None:
            self._say_soon(topic.zone)

    def ping(self, topic: Topic) -> None:
        """Pass a ping on to who writes the topic, whether we have heard of it yet or not."""
        zone = self._zones.get(topic.zone)
        if zone is not None:
            zone.pings[topic.canonical] = None
            self._say_soon(topic.zone)

    def _say_soon(self, name: str) -> None:
        zone = self._zones.get(name)
        if zone is not None:
            zone.soon.within(self._settings.gather)

    def _say(self, zone: OwnZone) -> None:
        settings, item = self._settings, (zone.sid.raw, zone.item.raw)
        pings = _as_many(zone.pings)
        said = Membership(
            self._env.node,
            self._publisher.raw.hex(),
            list(settings.hosts[:MOST_HOSTS]),
            settings.member_lease / SECOND,
            settings.priority,
            settings.weight,
            _as_many(each.canonical for each in self.news.values() if each.zone == zone.name),
            pings,
            sorted(self.met, key=lambda node: (node not in self.members, node))[:MOST_MEMBERS],
        )
        try:
            if item not in self._client.offers:
                self._client.offer(*item, key=settings.key)
            zone.said = self._client.publish(*item, encode(said), {"kind": "membership"})
        except NotPublished as error:
            self._env.log("membership.not_published", reason=error)
            zone.soon.within(settings.retry)
            return
        for topic in pings:
            del zone.pings[topic]
        zone.soon.within(settings.retry if zone.pings else settings.member_lease // 3)

    # What they say

    def _heard(self, zone: OwnZone, event: Event) -> None:
        pings = self._note(zone, event) if isinstance(event, Update) else []
        left = len(pings)

        def done() -> None:
            nonlocal left
            left -= 1
            if left <= 0 and zone.subscription is not None:
                zone.subscription.done(event)

        for topic in pings:
            self._pinged(topic, done)
        if not pings:
            # Later: the fabric has not returned from handing it over.
            self._env.call_later(0, done)

    def _note(self, zone: OwnZone, update: Update) -> list[str]:
        """Who says what; the topics that were pinged there."""
        try:
            said = read_membership(update.content)
        except MalformedMessage:
            self._counters["malformed_memberships"] += 1
            return []
        known = self.members.get(said.node)
        if said.node == self._env.node:
            self._came_back(zone, update.position)
            return []
        if known is None and len(self.members) >= MOST_MEMBERS:
            self._counters["members_left_out"] += 1
            return []
        if known is not None:
            known.end.cancel()
        end = self._env.call_later(int(said.lease * SECOND), self._end, said.node)
        self.members[said.node] = Member(said, end, self._env.now())
        self._remember(zone, said)
        if known is None or _matters(known.said) != _matters(said):
            self._changed()
        return said.pings

    def _came_back(self, zone: OwnZone, position: Position) -> None:
        """Our own announcement arrived, so announcements of earlier members do too."""
        said = zone.said
        same_life = said is not None and said.epoch == position.epoch
        if not zone.came_back and same_life:
            zone.came_back = True
            self._env.call_later(self._settings.probe, self._probed, zone)

    def _probed(self, zone: OwnZone) -> None:
        zone.probed = True
        self._changed()

    def _remember(self, zone: OwnZone, said: Membership) -> None:
        now, known = self._env.wall(), self._remembered.get(said.node)
        new = Remembered(said.publisher, said.hosts, now)
        same = known is not None and (known.publisher, known.hosts) == (new.publisher, new.hosts)
        if known is not None and same and now < known.heard + NOTED:
            return
        self._remembered[said.node] = new
        if known is None:
            self._say_soon(zone.name)  # that we know it
        changes: dict[bytes, bytes | None] = {
            PREFIX + said.node.encode(): msgspec.msgpack.encode(new)
        }
        absent = [node for node in self._remembered if node not in self.members]
        absent.sort(key=lambda node: self._remembered[node].heard)
        for node in absent:
            old = self._remembered[node].heard < now - REMEMBERED
            if old or len(self._remembered) > MOST_MEMBERS:
                del self._remembered[node]
                changes[PREFIX + node.encode()] = None
        self._env.storage.write(changes)

    def _end(self, node: str) -> None:
        """It has not been heard of for too long."""
        del self.members[node]
        self._changed()


def _covers(hosts: Sequence[str], host: str) -> bool:
    return any(host == own or host.endswith(f".{own}") for own in hosts)


def _matters(said: Membership) -> tuple[object, ...]:
    """What a proxy says of itself, without what is said once."""
    return said.publisher, said.hosts, said.priority, said.weight, said.news, said.met


def _as_many(topics: Iterable[str]) -> list[str]:
    """Of topics, those that one message has room for."""
    found: list[str] = []
    room = LARGEST // 4
    for topic in topics:
        room -= len(topic.encode()) + len('"",')
        if room < 0 or len(found) == MOST_TOPICS:
            break
        found.append(topic)
    return found
