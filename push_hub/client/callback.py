"""What may arrive at a subscriber's callback, and what it is answered: rules without I/O.

A callback has an unguessable URL, which only the hub learns. Even so it confirms nothing that its
owner does not want at that moment, and believes no content without the secret's signature.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from identifiers import InvalidPosition, InvalidTopic, Position, identify
from push_hub.feeds import Entry, Feed, compare
from push_hub.signatures import verified

DEFAULT_LEASE: Final = 10 * 86_400
"""Seconds, where a hub does not say what it granted."""

MAX_CHALLENGE: Final = 2_048
MAX_LEASE: Final = 10 * 365 * 86_400
MAX_DELIVERY_ID: Final = 512
MAX_KNOWN: Final = 20_000
"""Entries and delivery ids that are remembered to recognise repeats."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One update of a topic."""

    topic: str
    content_type: str
    content: bytes
    """The whole document, as the publisher served it."""
    entries: tuple[Entry, ...] = ()
    """Of a feed: every entry in the content. The texts are the publisher's: sanitise them."""
    new_entries: tuple[Entry, ...] = ()
    """Those that are new or changed since the notification before."""
    delivery_id: str | None = None
    """The same when a delivery is repeated; None from hubs that send none."""
    current: bool = False
    """What the topic held at the time of the subscription, fetched and not delivered."""
    known_position: Position | None = None
    """Of what came by stream."""

    @property
    def position(self) -> Position | None:
        """Which version this is, where a hub of ours says so, in the delivery id or a stream."""
        if self.known_position is not None:
            return self.known_position
        try:
            return Position.parse((self.delivery_id or "").rpartition("-")[0])
        except InvalidPosition:
            return None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The hub asked what we want: echo the challenge."""

    mode: str
    challenge: str
    lease_seconds: int


@dataclass(frozen=True, slots=True)
class Denied:
    """The hub refuses, or ends, the subscription."""

    reason: str


def read_verification(
    query: Mapping[str, str], topic: str, wanted: str
) -> Confirmed | Denied | None:
    """What a GET of the callback means; None is to be answered 404.

    `wanted` is the mode the owner has in mind: a hub that asks again whether we subscribe, as
    PubSubHubbub 0.3 does when a lease ends, is told yes for as long as we do.
    """
    if not _same(query.get("hub.topic", ""), topic):
        return None
    mode = query.get("hub.mode", "")
    if mode == "denied":
        return Denied(_line(query.get("hub.reason", "")) or "it gives no reason")
    challenge = query.get("hub.challenge", "")
    if not wanted or mode != wanted or not challenge or len(challenge) > MAX_CHALLENGE:
        return None
    return Confirmed(mode, challenge, _lease(query.get("hub.lease_seconds", "")))


def _same(one: str, other: str) -> bool:
    """Hubs may tidy up the spelling of a topic."""
    try:
        return one == other or identify(one).canonical == identify(other).canonical
    except InvalidTopic:
        return False


def _lease(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) == 0:
        return DEFAULT_LEASE
    return min(int(text), MAX_LEASE)


def renew_after(lease_seconds: int, random: float) -> float:
    """Seconds from the verification to the renewal: early enough to try more than once.

    `random`, from 0 to 1, keeps those who subscribed together from renewing together.
    """
    return lease_seconds * (0.7 + 0.1 * random)


def authentic(header: str | None, secret: bytes | None, content: bytes) -> bool:
    """Whether content may be believed; without a secret the callback's URL is all there is."""
    return secret is None or (header is not None and verified(header, secret, content))


class Memory:
    """What a subscriber has received, as far as it takes to recognise repeats."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._entries: OrderedDict[str, bytes] = OrderedDict()

    def repeated(self, delivery_id: str | None) -> bool:
        """Whether a delivery with this id was remembered."""
        return delivery_id is not None and delivery_id in self._ids

    def remember(self, delivery_id: str | None) -> None:
        """A delivery was taken."""
        if delivery_id is not None:
            self._ids[delivery_id] = None
            if len(self._ids) > MAX_KNOWN:
                self._ids.popitem(last=False)

    def notification(
        self,
        topic: str,
        content_type: str,
        content: bytes,
        feed: Feed | None,
        *,
        delivery_id: str | None = None,
        current: bool = False,
    ) -> Notification:
        """The content with the entries of the feed it is, if it is one; they are known now."""
        if feed is None:
            return Notification(
                topic, content_type, content, delivery_id=delivery_id, current=current
            )
        change = compare(self._entries, feed)
        fresh = {entry.key for entry in change.entries}
        for entry in feed.entries:
            self._entries[entry.key] = entry.digest
            self._entries.move_to_end(entry.key)
        while len(self._entries) > MAX_KNOWN:
            self._entries.popitem(last=False)
        new = tuple(entry for entry in feed.entries if entry.key in fresh)
        return Notification(topic, content_type, content, feed.entries, new, delivery_id, current)


def delivery_id(header: str | None) -> str | None:
    """An id worth remembering."""
    return header if header and len(header) <= MAX_DELIVERY_ID else None


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text[:500]).split())
