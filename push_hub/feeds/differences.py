"""Which entries of a feed are new or changed, against those known from earlier fetches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from push_hub.feeds.reading import Entry, Feed

Known = Mapping[str, bytes]
"""The entries seen so far: key to digest."""


@dataclass(frozen=True, slots=True)
class Change:
    """The entries that make a document worth an update, in the feed's order."""

    new: tuple[Entry, ...]
    changed: tuple[Entry, ...]

    def __bool__(self) -> bool:
        return bool(self.new or self.changed)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """New and changed ones together, in no order that means anything."""
        return self.new + self.changed


def compare(known: Known, feed: Feed) -> Change:
    """What a subscriber who has everything known has not seen.

    An entry that disappeared is no change: feeds drop their oldest all the time.
    """
    new = tuple(entry for entry in feed.entries if entry.key not in known)
    changed = tuple(
        entry for entry in feed.entries if known.get(entry.key, entry.digest) != entry.digest
    )
    return Change(new, changed)
