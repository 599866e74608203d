"""Mobility at a PSPH, as the configuration has it."""

from __future__ import annotations

import secrets
from typing import Annotated

import msgspec
from msgspec import Meta

from mobility.ahead import AheadSettings
from mobility.ahead.words import MOST_NEIGHBOURS
from mobility.messages import LARGEST
from mobility.service import LARGEST_QUOTA, LONGEST_KEEP, Quota, Service
from mobility.settings import ProxySettings
from psirp_sim.runtime.durations import SECOND
from psph.mobility.native_topics import NativeScopes
from push_hub.addresses import parse_networks
from push_hub.siblings import base_url

_CONTEXT_BYTES = 1 << 20
"""Buffered for one client that may come: what is more waits where it was."""
_Amount = Annotated[int, Meta(ge=0, le=LARGEST_QUOTA)]


class MobilityConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every hub of `psph serve` has a mobility proxy for clients that move."""

    enabled: bool = True
    """Whether clients may move in here."""
    peers: list[str] = []
    """Public URLs of hubs whose proxies may be asked, besides those found in DNS."""
    allow_peer: list[str] = []
    """Private networks that other proxies may be in nevertheless."""
    buffer: bool = False
    """Whether topics are buffered for clients that are away even where history would do."""
    clients: Annotated[int, Meta(ge=1, le=1_000_000)] = 5_000
    """Sessions at a time."""
    clients_per_address: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000
    """Of one client address."""
    stays: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Stays that are kept, of clients here and away."""
    topics: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    """Of one client."""
    messages_per_s: Annotated[float, Meta(ge=1, le=100_000)] = 100.0
    """Messages of one client address in the long run; ten times as many at once."""
    max_message: Annotated[int, Meta(ge=1_024, le=LARGEST)] = 4 << 20
    """Bytes of one message of a client or of another proxy."""
    native_scopes: list[str] = []
    """Scopes of the fabric, as ids, whose native topics clients may have; `*` for all."""
    grace_s: Annotated[float, Meta(ge=0.1, le=600)] = 2.0
    """How long a client whose connection is gone may take to come back before it counts as away."""
    keep_s: Annotated[float, Meta(gt=0, le=LONGEST_KEEP)] = 86_400.0
    """How long a client may be away at most before what waits for it is given up."""
    topic_messages: _Amount = 10_000
    """Messages that are kept of one topic of one client at most."""
    topic_bytes: _Amount = 64 << 20
    """Their bytes at most."""
    client_messages: _Amount = 100_000
    """Messages that are kept for one client at most."""
    client_bytes: _Amount = 256 << 20
    """Their bytes at most."""
    prepare: bool = True
    """Whether contexts of clients are kept one hop ahead, here and at proxies they may go to."""
    prepare_neighbours: Annotated[int, Meta(ge=1, le=MOST_NEIGHBOURS)] = 8
    """Proxies that clients move to and from; of more, the one used longest ago is forgotten."""
    prepare_age_s: Annotated[float, Meta(ge=1, le=LONGEST_KEEP)] = 21_600.0
    """How long a neighbour is one after nobody moved there, or came from there."""
    prepare_contexts: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Contexts that are kept for other proxies; a quarter of them for one."""
    prepare_topics: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    """Topics that are followed for clients which may come."""
    prepare_bytes: Annotated[int, Meta(ge=1_024, le=LARGEST_QUOTA)] = 64 << 20
    """Of all contexts, with what is buffered for them."""
    prepare_lapse_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 600.0
    """After which a context is dropped that its proxy said nothing of."""

    def __post_init__(self) -> None:
        parse_networks(self.allow_peer)
        NativeScopes(self.native_scopes)
        for url in self.peers:
            if base_url(url) is None:
                raise ValueError(f"peers: {url[:100]!r} is no URL of a hub: write http://HOST:PORT")

    def settings(self, domain: str) -> ProxySettings:
        """As the proxy core wants it."""
        most = Service(
            keep=self.keep_s,
            topic=Quota(self.topic_messages, self.topic_bytes),
            client=Quota(self.client_messages, self.client_bytes),
        )
        return ProxySettings(
            most=most,
            handlers=self.stays,
            topics=self.topics,
            domain=domain,
            ahead=self._ahead(),
        )

    def _ahead(self) -> AheadSettings:
        return AheadSettings(
            on=self.prepare,
            # Not kept: after a restart other proxies ask for new passes.
            key=secrets.token_bytes(32),
            neighbours=self.prepare_neighbours,
            age=int(self.prepare_age_s * SECOND),
            contexts=self.prepare_contexts,
            share=max(1, self.prepare_contexts // 4),
            topics=self.prepare_topics,
            bytes=self.prepare_bytes,
            context_bytes=min(_CONTEXT_BYTES, self.prepare_bytes),
            lapse=int(self.prepare_lapse_s * SECOND),
        )
