"""How the hub hears of a topic that nobody pings here: the ways, and when one gives way to another.

A topic that is subscribed to or watched, and that its publisher does not ping here, is looked at
once: what it says about its own hub decides. The hub asks there as any subscriber would, with a
secret, and renews the lease; where that does not work it polls, less often while nothing changes,
and asks again later. Pings that come here end all of it.

What another hub pushes is only a reason to fetch: what is recorded is always what the topic's own
URL answers, so a hub that lies, or leaves entries out, changes nothing for our readers.

What a carrier brings is left alone, for as long as it says so.

Also here: when a document that calls itself something else is believed (`same_document`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from identifiers import InvalidTopic, Topic, identify
from push_hub.settings import HubSettings

LEASE: Final = 10 * 86_400
"""Seconds asked for at another hub."""
LONGEST_LEASE: Final = 90 * 86_400
_RENEW: Final = 0.8
"""The part of a lease after which it is renewed."""
_SLOWER: Final = 1.5


class Way(StrEnum):
    """How updates of a topic come to be known. The value is what the store keeps."""

    LOOKING = "looking"
    """It is about to be fetched, to see what it says about its hub."""
    ASKED = "asked"
    """Its hub was asked and has not confirmed yet."""
    HUB = "hub"
    """Its hub pushes to us."""
    POLLED = "polled"
    PINGED = "pinged"
    """Its publisher pings here: nothing else needs to be done."""
    CARRIED = "carried"
    """The hub's carrier brings its updates; `reason` is how, in the carrier's words."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, from the settings."""

    poll_shortest: float
    poll_longest: float
    confirm: float
    """For another hub to confirm."""
    ask_again: float
    """Before a hub that failed is asked again; grows with every failure."""
    pinged_lately: float
    """How long one ping here counts as a publisher who pings."""

    @classmethod
    def of(cls, settings: HubSettings) -> Patience:
        return cls(
            settings.poll_shortest, settings.poll_longest, settings.confirm_patience,
            settings.ask_again, settings.pinged_lately,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Following:
    """How one topic is followed. `reason` says why it is not followed in a better way."""

    topic_id: int
    way: Way
    since: float
    due: float | None
    """When something has to be done about it."""
    hub: str | None = None
    self_url: str | None = None
    """The topic as its hub knows it."""
    token: str | None = None
    """The last part of the URL at which its hub reaches us; whoever knows it is that hub."""
    secret: bytes | None = None
    lease_until: float | None = None
    renew_at: float | None = None
    interval: float | None = None
    """Between polls."""
    ask_after: float | None = None
    failures: int = 0
    """Of its hub, in a row."""
    reason: str | None = None
    last_push_at: float | None = None

    def __repr__(self) -> str:
        """Without token and secret, which must not end up in a log."""
        return f"Following(topic {self.topic_id} {self.way} {self.hub} {self.reason})"


def looked_at(now: float, following: Following, patience: Patience) -> Following:
    """A look begins; should its end be lost, another one is due."""
    return replace(
        following, way=Way.LOOKING, since=now, due=now + patience.confirm, reason=None,
        lease_until=None, renew_at=None,
    )  # fmt: skip


def pinged(now: float, following: Following, until: float) -> Following:
    """Nothing to do, for so long."""
    since = following.since if following.way is Way.PINGED else now
    return replace(
        following, way=Way.PINGED, since=since, due=until, reason=None, lease_until=None,
        renew_at=None,
    )  # fmt: skip


def carried(now: float, following: Following, words: str) -> Following:
    """The carrier brings it. Its hub, if it had one, learns it from the answer to the next push."""
    since = following.since if following.way is Way.CARRIED else now
    return Following(following.topic_id, Way.CARRIED, since, None, reason=words)


def asked(
    now: float, following: Following, hub: str, self_url: str, token: str, secret: bytes,
    patience: Patience,
) -> Following:  # fmt: skip
    """A hub is being asked. A lease that runs goes on meanwhile; another hub has none yet."""
    if following.way is Way.HUB and following.hub == hub and following.lease_until is not None:
        return replace(following, due=following.lease_until, renew_at=None)
    return replace(
        following, way=Way.ASKED, since=now, due=now + patience.confirm, hub=hub,
        self_url=self_url, token=token, secret=secret, lease_until=None, renew_at=None,
    )  # fmt: skip


def confirmed(now: float, following: Following, lease: int | None, patience: Patience) -> Following:
    """The hub verified our intent and told the lease it grants."""
    seconds = min(lease or LEASE, LONGEST_LEASE)
    # Renewed no more often than it would be polled: a lease shorter than that ends, and is no use.
    renew_at = now + max(seconds * _RENEW, patience.poll_shortest)
    due = min(renew_at, now + patience.poll_longest)
    return replace(
        following, way=Way.HUB, since=following.since if following.way is Way.HUB else now,
        lease_until=now + seconds, renew_at=renew_at, due=due, failures=0, ask_after=None,
        reason=None,
    )  # fmt: skip


def polled(
    now: float, following: Following, reason: str, patience: Patience, *, hub_failed: bool = False
) -> Following:
    """Back to polling, or to begin with; a hub that failed is asked again later, ever later."""
    failures = following.failures + 1 if hub_failed else following.failures
    ask_after = following.ask_after
    if hub_failed:
        ask_after = now + min(patience.ask_again * 2.0 ** min(failures - 1, 10), 7 * 86_400.0)
    interval = following.interval or patience.poll_shortest
    return replace(
        following, way=Way.POLLED, since=following.since if following.way is Way.POLLED else now,
        interval=interval, due=now + interval, failures=failures, ask_after=ask_after,
        reason=reason, lease_until=None, renew_at=None,
    )  # fmt: skip


def after_poll(now: float, following: Following, changed: bool, patience: Patience) -> Following:
    """Sooner after news, later after none."""
    interval = following.interval or patience.poll_shortest
    interval = interval / 2 if changed else interval * _SLOWER
    interval = min(max(interval, patience.poll_shortest), patience.poll_longest)
    return replace(following, interval=interval, due=now + interval)


def described(following: Following) -> dict[str, object]:
    """For diagnostics: everything that is no secret, and `words` for people."""
    return {
        "way": str(following.way),
        "words": in_words(following),
        "hub": following.hub,
        "topic_at_hub": following.self_url,
        "since": following.since,
        "next_at": following.due,
        "lease_until": following.lease_until,
        "poll_interval": following.interval if following.way is Way.POLLED else None,
        "failures": following.failures,
        "reason": following.reason,
        "last_push_at": following.last_push_at,
    }


def in_words(following: Following) -> str:
    """How the hub hears of updates, and why not in a better way; without the topic's URL."""
    match following.way:
        case Way.LOOKING:
            return "it is about to be fetched, to see what it says about its hub"
        case Way.ASKED:
            return f"its hub {following.hub} was asked, and has not confirmed yet"
        case Way.HUB:
            return f"its hub {following.hub} pushes to this one"
        case Way.PINGED:
            return "its publisher pings this hub"
        case Way.CARRIED:
            return f"carried here: {following.reason}"
        case Way.POLLED:
            every = f"polled about every {following.interval or 0:.0f} s"
            return f"{every}: {following.reason}" if following.reason else every


def is_own(hub: str, own: str) -> bool:
    """Whether a topic names this very hub, by http or https."""
    here, there = urlsplit(own), urlsplit(hub)
    return (here.netloc.lower(), here.path) == (there.netloc.lower(), there.path)


def same_document(
    topic: Topic, answered: str, permanent: str | None, own: str | None
) -> list[Topic]:
    """The other names of a topic, from an answer that came from the URL `answered`.

    A permanent redirect is the word of the topic's own server. rel=self is the word of a document,
    which anybody writes: it is believed about the topic's own zone, and about the zone that the
    document did come from. Either way a joined topic is only fetched when the other is pinged,
    from its own URL: no content moves from one to the other, and anybody may ping anything.
    """
    found: dict[str, Topic] = {}
    zones = {topic.sid, *(each.sid for each in _topics([answered]))}
    for other in _topics([permanent]):
        found[other.canonical] = other
    for other in _topics([own]):
        if other.sid in zones:
            found[other.canonical] = other
    found.pop(topic.canonical, None)
    return list(found.values())


def _topics(urls: Iterable[str | None]) -> list[Topic]:
    topics = []
    for url in urls:
        if url is None:
            continue
        try:
            found = identify(url)
        except InvalidTopic:
            continue
        if found.canonical.startswith(("http:", "https:")):
            topics.append(found)
    return topics
