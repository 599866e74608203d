"""How a proxy serves its domain, and how patient it is."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.runtime.durations import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Times in nanoseconds."""

    hosts: tuple[str, ...]
    """Whose topics it publishes into the fabric, subdomains included."""
    key: Ed25519PrivateKey | None = None
    """Of the zone of these hosts: signs what is published."""
    refused: tuple[str, ...] = ()
    """Beginnings of canonical topics that stay at home."""
    accept_unsigned: bool = True
    """Whether publications of zones without a key are taken."""
    priority: int = 0
    weight: int = 1
    """Of this proxy among those of its hosts, as its SRV record has them: topics are shared among
    those of the lowest priority, by weight."""
    member_lease: int = 10 * SECOND
    """How long another proxy of our hosts counts as there when it is not heard of."""
    probe: int = 250 * MILLISECOND
    """How long a proxy waits for the other proxies of its zone to answer, from when its own
    announcement has come back to it through the rendezvous."""
    probe_time_out: int = 2 * SECOND
    """How long after its start it asks for no writer lease because it may turn out to be alone."""
    standby: int = SECOND
    """How long the proxies that a topic does not belong to leave it to the one it does."""
    request_lease: int = 60 * SECOND
    """How long another proxy goes on publishing for us when it does not hear of us; the requests
    are made again every third of it."""
    linger: int = 5 * SECOND
    """How long a chain outlives its last reader, who may be back soon."""
    announce: int = 3_600 * SECOND
    """How long after an update a topic of ours is offered to the fabric though nobody asked."""
    most_announced: int = 1_000
    most_requested: int = 10_000
    """Topics that one other proxy may ask for in a zone, or this one asks for."""
    most_proxies: int = 1_000
    """That may ask at the same time."""
    most_wanted: int = 100_000
    """Topics that all other proxies together may ask for."""
    retry: int = SECOND
    """After which what the fabric did not take is tried again."""
    gather: int = 5 * MILLISECOND
    """Requests and answers that change within it go out together."""

    def serves(self, host: str) -> bool:
        """Whether topics of this host are ours to publish."""
        return any(host == own or host.endswith(f".{own}") for own in self.hosts)

    def refuses(self, canonical: str) -> bool:
        """Whether the topic stays at home."""
        return any(canonical.startswith(each) for each in self.refused)
