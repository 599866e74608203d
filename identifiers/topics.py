"""From a topic to its ids, and from a zone to its channel: the functions most callers want."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from identifiers.canonical import canonicalise
from identifiers.ids import (
    RendezvousId,
    ScopeId,
    channel_item_id,
    channel_scope_id,
    rendezvous_id,
    scope_id,
)
from identifiers.zones import split_zone, zone_of_host


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it was spelled, and all that follows from the spelling.

    The ids tell which spellings mean the same topic; compare those, not Topics.
    """

    spelling: str
    canonical: str
    host: str
    zone: str
    sid: ScopeId
    rid: RendezvousId


class ZoneChannel(NamedTuple):
    """Where a zone announces all its topics, for those who subscribe to the whole of it."""

    sid: ScopeId
    rid: RendezvousId


# An entry is a kilobyte for a common topic and a dozen for the longest one allowed.
@lru_cache(maxsize=8_192)
def identify(topic: str) -> Topic:
    """The ids of `topic`, or an InvalidTopic that says why it has none."""
    canonical, host = canonicalise(topic)
    zone = zone_of_host(host)
    sid = _scope_id(zone)
    return Topic(topic, canonical, host, zone, sid, rendezvous_id(sid, canonical))


def zone_channel(zone: str) -> ZoneChannel | None:
    """The channel of `zone`; None for an IP address, a single label or a public suffix."""
    parts = split_zone(zone)
    if parts is None:
        return None
    label, suffix = parts
    return ZoneChannel(channel_scope_id(label), channel_item_id(suffix))


# Zones are few and their topics many.
_scope_id = lru_cache(maxsize=8_192)(scope_id)
