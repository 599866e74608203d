"""Is what was fetched news? Feeds by their entries, everything else by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from push_hub.feeds import compare, read_feed
from push_hub.feeds.presenting import entries_json


@dataclass(frozen=True, slots=True)
class News:
    """What a body brings that was not known before."""

    digest: bytes
    entries: str | None
    known: Mapping[str, bytes] | None
    changed: frozenset[str]


def digest_of(body: bytes) -> bytes:
    """What two equal bodies share."""
    return hashlib.blake2b(body, digest_size=32).digest()


def find_news(
    content_type: str, body: bytes, last_digest: bytes | None, known: Mapping[str, bytes]
) -> News | None:
    """The news in a body, or None when every entry is known, or the bytes are the same."""
    digest = digest_of(body)
    if digest == last_digest:
        return None
    feed = read_feed(content_type, body)
    if feed is None:
        return News(digest, None, None, frozenset())
    change = compare(known, feed)
    # A feed that was never seen is news even when it is empty.
    if not change and last_digest is not None:
        return None
    return News(
        digest,
        entries_json(change.entries),
        {entry.key: entry.digest for entry in feed.entries},
        frozenset(entry.key for entry in change.entries),
    )
