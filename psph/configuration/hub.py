"""The hub of a node, and its proxy, as the configuration has them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from identifiers import InvalidTopic, identify, normalise_host
from psirp_sim.runtime.durations import SECOND
from psirp_sim.wire.publications import LARGEST
from psph.configuration.addresses import check_public_url, parse_address
from psph.proxy.settings import ProxySettings
from push_hub import HubSettings, Publisher
from push_hub.addresses import parse_networks
from push_hub.leases import LeaseBounds

Seconds = Annotated[float, Meta(ge=0.1, le=30 * 86_400)]


class HubPublisher(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may send content to the hub, besides who has its admin token."""

    token: Annotated[str, Meta(min_length=16, max_length=1_000)]
    """What is shown as `Authorization: Bearer TOKEN`."""
    prefix: str
    """How the topics begin that it is good for."""

    def __post_init__(self) -> None:
        try:
            canonical = identify(self.prefix).canonical
        except InvalidTopic as error:
            raise ValueError(f"prefix: {error}") from None
        # Topics are compared as they are, in their normal form; without a path a name could go on.
        if self.prefix != canonical or not canonical.startswith(("http:", "https:")):
            raise ValueError(f"prefix: {self.prefix[:100]!r} must be a URL, like {canonical!r}")


class HubConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The role hub: a WebSub hub."""

    listen: str = "127.0.0.1:8080"
    """Where it serves; a PSPH's address in DNS leads here."""
    public_url: str | None = None
    """Where the world reaches it, if that is elsewhere."""
    allow_fetch: list[str] = []
    """Private networks that topics may be fetched from nevertheless."""
    allow_callback: list[str] = []
    """Private networks that callbacks may be in nevertheless."""
    topic_hosts: list[str] = []
    """Whose topics it serves, subdomains included; empty: everybody's."""
    public_metrics: bool = False
    """Whether /metrics is served at `listen`, too, and not only at the admin port."""
    trusted_proxies: list[str] = []
    """Networks of reverse proxies whose X-Forwarded-For is believed."""
    poll_s: Annotated[float, Meta(ge=1)] | None = None
    """Fetch every subscribed topic this often, pinged or not."""
    follow: bool = True
    """Whether topics that nobody pings here are followed at their own hub, or polled."""
    poll_shortest_s: Annotated[float, Meta(ge=1, le=21_600)] = 300.0
    """How often topics without a hub are polled while they change; less often while they do not."""
    history: Annotated[int, Meta(ge=1, le=1_000_000)] = 4_000
    """Updates of a topic that are kept for those who resume."""
    max_body: Annotated[int, Meta(ge=1_024, le=LARGEST)] = 10 << 20
    """Bytes of one version of a topic."""
    shortest_lease_s: Annotated[int, Meta(ge=1, le=86_400)] = 300
    """Subscribers who ask for a shorter lease get this one."""
    reader_lease_s: Annotated[float, Meta(ge=1, le=86_400)] = 3_600.0
    """How long a topic is followed for somebody who read it once at /t/."""
    publisher: list[HubPublisher] = []
    """Who may send content, for which topics."""
    dns_zones: list[str] = []
    """Zones whose hosts are looked up at bootstrap.nameservers, and not by the system."""

    def __post_init__(self) -> None:
        parse_address(self.listen)
        for key in ("allow_fetch", "allow_callback", "trusted_proxies"):
            parse_networks(getattr(self, key))
        for host in (*self.topic_hosts, *self.dns_zones):
            _host(host)
        if self.public_url is not None:
            check_public_url("public_url", self.public_url)

    def settings(self, url: str, token: str) -> HubSettings:
        """As the hub wants it; `url` is where it serves."""
        return HubSettings(
            self.public_url or url,
            allow_fetch=parse_networks(self.allow_fetch),
            allow_callback=parse_networks(self.allow_callback),
            topic_hosts=tuple(map(_host, self.topic_hosts)),
            # Whoever can read the data directory may publish anything.
            publishers=(
                Publisher(token, "http"),
                *(Publisher(each.token, each.prefix) for each in self.publisher),
            ),
            admin_token=token,
            public_metrics=self.public_metrics,
            leases=LeaseBounds(shortest=self.shortest_lease_s),
            reader_lease=self.reader_lease_s,
            trusted_proxies=parse_networks(self.trusted_proxies),
            poll_every=self.poll_s,
            follow_after=60.0 if self.follow else None,
            poll_shortest=self.poll_shortest_s,
            history=self.history,
            max_body=self.max_body,
        )


class ProxyConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The role proxy: what makes a hub with a fabric a Pub/Sub Proxy Hub."""

    hosts: list[str] = []
    """Whose topics it publishes into the fabric, subdomains included; node.domain when empty."""
    refused: list[str] = []
    """Beginnings of topic URLs that stay at home."""
    accept_unsigned: bool = True
    """Whether publications of zones that publish no key are taken."""
    request_lease_s: Seconds = 60.0
    """How long others go on publishing for us when they do not hear of us."""
    linger_s: Seconds = 5.0
    """How long a chain outlives its last reader."""
    announce_s: Seconds = 3_600.0
    """How long after an update a topic is offered to the fabric though nobody asked for it."""
    admit_s: Seconds = 5.0
    """How long a subscriber waits to be confirmed until the topic's own proxy has answered."""

    def __post_init__(self) -> None:
        for host in self.hosts:
            _host(host)
        for text in self.refused:
            try:
                identify(text)
            except InvalidTopic as error:
                raise ValueError(f"refused: {error}") from None

    def settings(self, domain: str) -> ProxySettings:
        """As the proxy wants it; the key comes from elsewhere."""
        return ProxySettings(
            hosts=tuple(map(_host, self.hosts or [domain])),
            refused=tuple(identify(text).canonical for text in self.refused),
            accept_unsigned=self.accept_unsigned,
            request_lease=int(self.request_lease_s * SECOND),
            linger=int(self.linger_s * SECOND),
            announce=int(self.announce_s * SECOND),
        )


def _host(text: str) -> str:
    try:
        return normalise_host(text)
    except InvalidTopic as error:
        raise ValueError(str(error)) from None
