"""The Mapping/Conversion Function: from a topic to <SId, RId> and back, believing nobody.

A publication names the topic it is a version of. That name is checked against the ids under which
it came, so nobody can publish one topic under the ids of another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping as Map
from typing import Protocol

from pybloom_live import BloomFilter

from identifiers import InvalidTopic, RendezvousId, ScopeId, Topic, identify, is_of_jid
from psirp_sim.publications.delivery import Place
from psirp_sim.publications.events import Update
from psirp_sim.publications.tracing import TRACE_ID
from psph.proxy.ports import WebUpdate

TOPIC = "topic"
CONTENT_TYPE = "content-type"
PUBLISHED = "published"
"""Present in the metadata of content that its publisher sent; what was fetched lacks it."""
RECORDED = "recorded_ms"
"""When the hub that numbered it did: milliseconds since 1970, in decimal. Who publishes without a
hub leaves it out."""
COVERED = "covered"
"""In what a proxy publishes: up to which epoch and version of its own stream somebody who followed
the topic before lacks nothing, and in which turn it wrote this, the fencing epoch of its lease. Who
publishes without a hub has nobody to take over from."""
DEFAULT_TYPE = "application/octet-stream"

_TRACE_ID = re.compile("[0-9a-f]{32}")
_RECORDED = re.compile("[0-9]{1,15}")
_COVERED = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})")
_LONGEST_TYPE = 1_000

Item = tuple[bytes, bytes]


class Registry(Protocol):
    """Remembers which topics there are ids of; `psph.registry` does so durably."""

    def add(self, topic: str, /) -> Topic: ...
    def topic_of(self, sid: ScopeId, rid: RendezvousId, /) -> str | None: ...


class Refused(Exception):
    """A publication that is not what it says; the message is a word for the counters."""


def _passable_type(text: str) -> str:
    """A content type that can be the value of an HTTP header."""
    good = 0 < len(text) <= _LONGEST_TYPE and text.isascii() and text.isprintable()
    return text if good else DEFAULT_TYPE


class Mapping:
    """The topics that are active at this proxy, and what is wrong with what comes."""

    def __init__(self, registry: Registry, counters: Counter[str], accept_unsigned: bool) -> None:
        self._registry = registry
        self._counters = counters
        self._accept_unsigned = accept_unsigned
        self.active: dict[Item, Topic] = {}
        self._uses: Counter[Item] = Counter()
        self._in_zone: Counter[bytes] = Counter()
        self._zones: dict[bytes, str] = {}
        self._summary: BloomFilter | None = None

    # From the web to the fabric

    def activate(self, canonical: str) -> Topic:
        """The topic with its ids; it is remembered, so that there is a way back.

        It is active until it was deactivated as often.
        """
        topic = self._registry.add(canonical)
        item = (topic.sid.raw, topic.rid.raw)
        self._uses[item] += 1
        if item not in self.active:
            self.active[item] = topic
            self._in_zone[topic.sid.raw] += 1
            self._zones[topic.sid.raw] = topic.zone
            self._summary = None
        return topic

    def deactivate(self, topic: Topic) -> None:
        """Somebody here has to do with it no longer."""
        item = (topic.sid.raw, topic.rid.raw)
        self._uses[item] -= 1
        if not self._uses[item]:
            del self._uses[item], self.active[item]
            self._in_zone[topic.sid.raw] -= 1
            if not self._in_zone[topic.sid.raw]:
                del self._in_zone[topic.sid.raw], self._zones[topic.sid.raw]
            self._summary = None

    def zone_of(self, sid: bytes) -> str | None:
        """The zone of a scope that an active topic is in."""
        return self._zones.get(sid)

    @staticmethod
    def describe(update: WebUpdate, covered: Place, turn: int) -> dict[str, str]:
        """What goes with the content, so that the other side can make the same update of it."""
        described = {
            TOPIC: update.topic,
            CONTENT_TYPE: update.content_type,
            TRACE_ID: update.trace_id,
            COVERED: f"{covered[0]}.{covered[1]}.{turn}",
        }
        if update.published:
            described[PUBLISHED] = "1"
        if update.recorded_ms:
            described[RECORDED] = str(update.recorded_ms)
        return described

    # From the fabric to the web

    def convert(self, update: Update) -> WebUpdate | None:
        """The update of a topic; None, and counted, when it is not what it says it is."""
        try:
            return self._convert(update)
        except Refused as refusal:
            self._counters[str(refusal)] += 1
            return None

    def _convert(self, update: Update) -> WebUpdate:
        metadata: Map[str, str] = update.metadata
        try:
            topic = identify(metadata.get(TOPIC, ""))
        except InvalidTopic:
            raise Refused("no_topic") from None
        if (topic.sid.raw, topic.rid.raw) != (update.sid, update.rid):
            raise Refused("wrong_topic")
        # Of a zone without a key anybody could say what its users are made to say.
        if not update.signed and (is_of_jid(topic.canonical) or not self._accept_unsigned):
            raise Refused("unsigned")
        trace_id = metadata.get(TRACE_ID, "")
        recorded = _RECORDED.fullmatch(metadata.get(RECORDED, ""))
        return WebUpdate(
            topic.canonical,
            update.position,
            _passable_type(metadata.get(CONTENT_TYPE, "")),
            update.content,
            trace_id if _TRACE_ID.fullmatch(trace_id) else "",
            PUBLISHED in metadata,
            0 if recorded is None else int(recorded[0]),
        )

    @staticmethod
    def covered(update: Update) -> tuple[Place, int] | None:
        """What `describe` was told; None for who publishes without a hub."""
        found = _COVERED.fullmatch(update.metadata.get(COVERED, ""))
        return None if found is None else ((int(found[1]), int(found[2])), int(found[3]))

    # The summary

    @property
    def summary(self) -> BloomFilter:
        """A Bloom filter of the active topics, which may be handed to others: it says "no" for
        sure and "yes" but for one in a thousand."""
        if self._summary is None:
            self._summary = BloomFilter(capacity=max(64, len(self.active)), error_rate=0.001)
            for sid, rid in self.active:
                self._summary.add(sid + rid)
        return self._summary

    def may_be_active(self, sid: bytes, rid: bytes) -> bool:
        """What the summary says of a topic."""
        return sid + rid in self.summary
