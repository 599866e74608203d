"""The settings of the two cores. Times are nanoseconds, as everywhere below the facades."""

from __future__ import annotations

from dataclasses import dataclass, field

from mobility.ahead.settings import AheadSettings
from mobility.service import LONGEST_KEEP, Quota, Service
from psirp_sim.runtime.durations import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Of the client library."""

    service: Service = field(default_factory=Service)
    alive: int = 5 * SECOND
    """Between two signs of life."""
    retry_first: int = 1 * SECOND
    """Until a question is repeated; longer than a round trip should take."""
    retry_most: int = 8 * SECOND
    poll: int = 200 * MILLISECOND
    """Until a buffer that did not have what is lacking is asked again."""
    linger: int = 3 * SECOND
    """How long a buffer that can be reached may go on not having it before it counts as missing:
    longer than a message takes through the pub/sub system."""
    patience: int = 60 * SECOND
    """How long a proxy may be unreachable before what it keeps counts as missing."""
    held_bytes: int = 16 << 20
    """What may wait in merge queues; beyond it, nothing more is waited for."""
    delay: int = 2 * SECOND
    """In mode delay: between subscribing and collecting."""
    ping: int = 500 * MILLISECOND
    """In mode ping: between two pings."""
    batch: int = 16 << 10
    """Bytes of messages in one answer."""
    debts: int = 16
    """Stays whose buffers are remembered; of more, the oldest is given up."""
    outgoing: int = 10_000
    """Publications that may wait for a place to be sent from."""
    window: int = 16
    """Publications under way at a time."""
    json: bool = False
    """Speak JSON instead of MessagePack."""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Of the mobility proxy."""

    most: Service = field(
        default_factory=lambda: Service(
            keep=LONGEST_KEEP, topic=Quota(100_000, 64 << 20), client=Quota(1_000_000, 256 << 20)
        )
    )
    """What a client may ask for at most."""
    handlers: int = 100_000
    """Stays that are kept, of all clients."""
    handlers_per_client: int = 32
    topics: int = 10_000
    """Of one client."""
    silence: int = 3
    """How many signs of life may be missing before a client has vanished."""
    remember: int = 24 * 3600 * SECOND
    """How long an expired stay, or a claim without any, is remembered."""
    relays: int = 10_000
    """Questions passed on and not answered yet."""
    relay_time: int = 10 * SECOND
    """How long an answer is waited for; the client asks again before."""
    ahead: AheadSettings = field(default_factory=AheadSettings)
    """Whether contexts are prepared at neighbours, and for them."""
    domain: str = "-"
    """Where traces say this proxy is."""
