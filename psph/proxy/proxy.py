"""The proxy: its functions put together, and their places in the flow of an update.

Out of this domain: `recorded` (the hub has a version) -> `origin` -> `mapping` -> the fabric.
Into it: the fabric -> `inflow` -> `mapping` -> `Web.deliver` (the hub records it). Who wants what
is in `control`; `asking` and `answering` carry wishes from the proxy of a reader to that of the
website.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from identifiers import Position, Topic, identify, scope_id
from identifiers.zones import zone_of_host
from psirp_sim.node import FabricNode
from psirp_sim.publications.envelope import Keys
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psph.proxy.answering import Answering
from psph.proxy.asking import Asking
from psph.proxy.cluster import Cluster
from psph.proxy.control import Control, Side
from psph.proxy.inflow import STANDBY, Inflow, Ready
from psph.proxy.mapping import Mapping, Registry
from psph.proxy.messages import Answer
from psph.proxy.origin import Origin
from psph.proxy.ports import Directory, Web, WebUpdate
from psph.proxy.recalling import Recalling
from psph.proxy.settings import ProxySettings
from psph.proxy.writing import Writing

SHORTLY = 20 * MILLISECOND
COUNTED = (
    "published", "received", "not_published", "history_exceeded", "gaps", "wrong_topic",
    "no_topic", "unsigned", "requests_sent", "answers_sent", "malformed_requests",
    "malformed_answers", "refused", "requests_refused", "requests_left_out", "proxies_left_out",
    "members_left_out", "handed_over", "malformed_memberships",
)  # fmt: skip
"""What the proxy did and refused; each is counted from 0."""


class Proxy:
    """A core that lives on a node of the fabric, beside its client."""

    def __init__(
        self,
        env: Environment,
        settings: ProxySettings,
        node: FabricNode,
        registry: Registry,
        directory: Directory,
        web: Web,
    ) -> None:
        self.env = env
        self.settings = settings
        self.node = node
        self.web = web
        self.directory = directory
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.mapping = Mapping(registry, self.counters, settings.accept_unsigned)
        self.control = Control(env, self._wish_changed)
        self.begun = False
        """Whether the node has, and everything of an earlier life was taken up."""
        self._waiting: list[tuple[str, Ready]] = []
        """Who asked before that."""
        self._own_zones = {zone_of_host(host) for host in settings.hosts}
        self._own_scopes = {scope_id(zone).raw: zone for zone in self._own_zones}
        self._own_keys: Keys = (
            () if settings.key is None else (settings.key.public_key().public_bytes_raw(),)
        )

    def start(self) -> None:
        """As soon as the node has a life of its own."""
        if not self.node.begun:
            self.env.call_later(SHORTLY, self.start)
            return
        client = self.node.client
        client.keys_of = self.keys_of
        shared = (self.env, self.settings, client)
        self.asking = Asking(*shared, self.counters, self._answered)
        self.cluster = Cluster(
            *shared,
            self.counters,
            self.web.publisher,
            changed=self._members_changed,
            pinged=self._pinged_elsewhere,
        )
        self.writing = Writing(self.env, self.settings, self.node.rendezvous.writers, self.cluster)
        self.origin = Origin(
            *shared,
            self.writing,
            self.cluster,
            self.mapping,
            self.web,
            self.counters,
            changed=self._own_changed,
            standby=self._stand_by,
            turned=self._turned,
        )
        self.inflow = Inflow(
            *shared, self.mapping, self.directory, self.web, self.asking, self.counters, self.origin
        )
        self.recalling = Recalling(*shared, self.mapping)
        self.answering = Answering(*shared, self.control, self.counters, self.origin.offered)
        self.begun = True
        self.control.load()
        for side in Side:
            for topic in self.control.topics(side):
                self._wish_changed(side, topic, True)
        self.answering.start()
        self.cluster.start()
        self.env.call_later(self.settings.probe_time_out, self.writing.try_votes)
        waiting, self._waiting = self._waiting, []
        for canonical, ready in waiting:
            self.inflow.when_ready(canonical, ready)

    # What facades say

    def want(self, topic: Topic, subscriber: str, until: int | None) -> None:
        """Somebody on the web wants a topic; `until` is the end of the lease, by the wall clock."""
        self.control.want(Side.WEB, topic.canonical, subscriber, until)

    def leave(self, topic: Topic, subscriber: str) -> None:
        """That one does no longer."""
        self.control.leave(Side.WEB, topic.canonical, subscriber)

    def confirmed(self) -> None:
        """All wishes of the web were said again after a start."""
        self.control.confirmed(Side.WEB)

    def when_ready(self, topic: Topic, ready: Ready) -> None:
        """Call back once it is decided how a topic that is wanted comes here."""
        if self.begun:
            self.inflow.when_ready(topic.canonical, ready)
        else:
            self._waiting.append((topic.canonical, ready))

    def brings(self, topic: Topic) -> str | None:
        """In words, how the fabric brings a topic; None when the hub has to see for itself."""
        return self.inflow.brings(topic.canonical, topic.host) if self.begun else None

    def pinged(self, topic: Topic) -> None:
        """A website said at our hub that a topic has changed which the fabric brings."""
        if self.begun and self.origin.is_elsewhere(topic.canonical):
            self.cluster.ping(topic)

    def recall(
        self,
        topic: Topic,
        after: Position,
        before: Position | None,
        reply: Callable[[Sequence[WebUpdate]], None],
    ) -> None:
        """The versions of one stream between two Positions, or all after the first, as far as the
        fabric still has them."""
        if self.begun:
            self.recalling.recall(topic, after, before, reply)
        else:
            self.env.call_later(0, reply, ())

    def recorded(self, update: WebUpdate) -> None:
        """The hub has a new version of a topic."""
        if self.begun:
            self.origin.recorded(update)

    # What the directory says

    def zone_changed(self, zone: str) -> None:
        """More is known of a zone, or something else."""
        if self.begun:
            self.inflow.zone_changed(zone)

    def keys_of(self, sid: bytes) -> Keys | None:
        """The keys of the zone that a scope is of; None while they are not known."""
        zone = self.mapping.zone_of(sid) or self._own_scopes.get(sid)
        if zone is None:
            return ()  # of a channel: proxies ask each other unsigned, within the fabric
        known = self.directory.look_up(zone)
        if known is None:
            return None  # our own key is no answer: others of our zone may use the one it replaces
        return (*self._own_keys, *known.keys) if zone in self._own_zones else known.keys

    # What its own functions say

    def _wish_changed(self, side: Side, topic: str, wanted: bool) -> None:
        if not self.begun:
            return  # `start` takes it up
        function = self.inflow if side is Side.WEB else self.origin
        if wanted:
            function.want(topic)
        else:
            function.unwant(topic)
        if side is Side.WEB:
            self.origin.attend(topic, wanted)

    def _answered(self, topic: str, answer: Answer | None) -> None:
        self.inflow.answered(topic, answer)

    @property
    def is_ready(self) -> bool:
        """Whether an update can cross at once."""
        return self.begun and self.writing.is_ready

    def _members_changed(self) -> None:
        self.writing.try_votes()
        for topic in self.control.topics(Side.WEB):
            self.origin.attend(topic, True)
            self.inflow.turned(topic)
        self.origin.members_changed()

    def _pinged_elsewhere(self, canonical: str, done: Callable[[], None]) -> None:
        own = self.origin.topics.get(canonical)
        if own is not None and not own.turn.elsewhere:
            self.web.ping(own.topic, done)
        else:
            self.env.call_later(0, done)

    def _stand_by(self, topic: str, wanted: bool) -> None:
        if wanted:
            self.inflow.want(topic, STANDBY)
        else:
            self.inflow.unwant(topic, STANDBY)

    def _turned(self, canonical: str) -> None:
        self.inflow.turned(canonical)
        self.web.carried(identify(canonical))

    def _own_changed(self, topic: str) -> None:
        self.answering.changed(topic)

    def status(self) -> dict[str, object]:
        """For the diagnostics."""
        if not self.begun:
            return {"state": "starting"}
        return {
            "state": "running",
            "wishes": len(self.control),
            "active_topics": len(self.mapping.active),
            "summary_bytes": self.mapping.summary.num_bits // 8,
            "wanted_here": {
                each.topic.canonical: {"state": str(each.state), "note": each.note}
                for each in list(self.inflow.topics.values())[:1_000]
            },
            "published": {
                each.topic.canonical: {
                    "open": each.open,
                    "writer": each.held,
                    "written_by": each.turn.elsewhere or None,
                    "last": None if each.last is None else str(each.last),
                }
                for each in list(self.origin.topics.values())[:1_000]
            },
            "ready": self.is_ready,
            "alone": self.cluster.is_alone,
            "others": {
                name: {"hosts": member.said.hosts, "publisher": member.said.publisher}
                for name, member in self.cluster.members.items()
            },
            "counters": dict(self.counters),
        }
