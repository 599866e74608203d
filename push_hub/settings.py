"""Everything about a hub that can be chosen, with the defaults of a hub open to the world."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from push_hub.leases import LeaseBounds
from push_hub.retries import RetrySchedule
from push_hub.signatures import DEFAULT_ALGORITHM

_FETCH_RETRIES = RetrySchedule(first=2.0, attempts=6, longest=600.0)
_VERIFICATION_RETRIES = RetrySchedule(first=5.0, attempts=3, longest=60.0)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Publisher:
    """Who may send content directly: whoever bears the token, for topics that begin so."""

    token: str = field(repr=False)
    prefix: str


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second on average, and so many at once."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Durations are seconds, sizes bytes."""

    public_url: str
    """Where the world reaches the hub, without a slash at the end; /hub is added for links."""

    allow_fetch: tuple[Network, ...] = ()
    """Private networks that topics may be fetched from nevertheless."""
    allow_callback: tuple[Network, ...] = ()
    """Private networks that callbacks may be in nevertheless."""
    topic_hosts: tuple[str, ...] = ()
    """Whose topics the hub serves, subdomains included; empty: everybody's."""
    publishers: tuple[Publisher, ...] = ()
    admin_token: str = field(default="", repr=False)
    """Who bears it sees whole callbacks in the diagnostics; empty: nobody."""

    public_metrics: bool = False
    """Whether /metrics is served beside /hub, without a token; the admin port always has it."""

    leases: LeaseBounds = field(default_factory=LeaseBounds)
    delivery_retries: RetrySchedule = field(default_factory=RetrySchedule)
    fetch_retries: RetrySchedule = _FETCH_RETRIES
    verification_retries: RetrySchedule = _VERIFICATION_RETRIES
    """Only where the callback could not be reached at all: an answer is an answer."""
    signature: str = DEFAULT_ALGORITHM

    fetch_timeout: float = 20.0
    callback_timeout: float = 10.0
    max_body: int = 10 << 20
    """Of a topic, before and after decompression."""
    max_form: int = 256 << 10
    max_redirects: int = 5

    probe_every: float = 60.0
    """Least seconds between two probes of a callback host: attempts that an update leads to before
    the time of the next retry."""

    deliveries_at_once: int = 256
    deliveries_per_host: int = 64
    verifications_at_once: int = 128
    fetches_at_once: int = 32
    fetches_per_host: int = 4

    max_subscriptions: int = 1_000_000
    max_subscriptions_per_host: int = 100_000
    max_topics: int = 200_000
    max_waiting: int = 1_000
    """Updates that may wait for one subscription; beyond that its oldest are dropped."""
    remember_ended: float = 7 * 86_400.0
    """How long subscriptions that ended are kept for the diagnostics."""
    history: int = 100
    """Updates of a topic that are kept for streams that resume."""
    history_bytes: int = 64 << 20
    """Of one topic; the latest update is kept whatever its size."""
    trusted_proxies: tuple[Network, ...] = ()
    """Networks of reverse proxies whose X-Forwarded-For says who the client is."""
    client_rate: Rate = Rate(per_second=200.0, burst=2_000)
    """Requests of one client address."""
    verification_rate: Rate = Rate(per_second=20.0, burst=200)
    """Questions to one callback host that it did not answer with yes, and denials: anybody can
    make the hub ask anybody. Those it confirms do not count."""
    unverified_per_host: int = 5_000
    """Requests for one callback host that may wait for their verification."""
    body_timeout: float = 30.0
    """Within which a client has to have sent what it announced."""
    ping_rate: Rate = Rate(per_second=2.0, burst=20)
    """Fetches of one topic that bring nothing new; pings beyond it are answered as ever and
    coalesce."""
    version_rate: Rate = Rate(per_second=20.0, burst=100)
    """Fetches of one topic that bring a new version; pings beyond it coalesce, too."""
    recheck_after: tuple[float, ...] = (2.0, 10.0, 60.0)
    """When a pinged topic is fetched again because nothing was new and a cache may have answered,
    counted from the first fetch. Empty: never."""
    recheck_rate: Rate = Rate(per_second=2.0, burst=60)
    """Of such fetches, for all topics of one host; those beyond it come later, or not at all."""

    poll_every: float | None = None
    """Fetch every topic that is subscribed to this often, pinged or not; None: do not."""
    follow_after: float | None = 60.0
    """How long a topic that is subscribed to may go without a ping here before it is followed at
    its own hub, or polled; one that is watched is followed at once. None: never."""
    poll_shortest: float = 300.0
    poll_longest: float = 6 * 3_600.0
    """Polls become rarer while nothing changes, between these."""
    confirm_patience: float = 120.0
    """For another hub to confirm our subscription."""
    ask_again: float = 3_600.0
    """Before a hub that did not is asked again; doubles with each failure, up to a week."""
    pinged_lately: float = 7 * 86_400.0
    """How long a ping here means that the publisher pings here."""

    guide_check: float | None = 60.0
    """How often a guide is asked again which topics hubs of our domain have. None: never."""

    admit_patience: float = 15.0
    """For a carrier to be ready for a topic before a callback is asked."""
    recall_patience: float = 20.0
    """For a carrier to bring versions once more that a stream has missed."""
    recall_bytes: int = 4 << 20
    """Of such versions that are held for streams at a time; one is, whatever its size."""

    reader_lease: float = 3_600.0
    """How long one GET of /t/TOPIC counts as a reader of the topic."""
    reader_patience: float = 10.0
    """For the first version of a topic that a reader asks for."""
    reader_topics: int = 10_000
    """Topics that are followed for readers of /t/ at a time."""

    streams_at_once: int = 5_000
    topics_per_stream: int = 100
    stream_buffer: int = 1 << 20
    """Bytes that may wait for one browser before it is dropped."""
    heartbeat: float = 15.0

    @property
    def hub_url(self) -> str:
        """What rel=hub says."""
        return f"{self.public_url.rstrip('/')}/hub"

    def serves_host(self, host: str) -> bool:
        """Whether topics of this host are served here."""
        if not self.topic_hosts:
            return True
        return any(host == own or host.endswith(f".{own}") for own in self.topic_hosts)
