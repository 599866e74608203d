"""What the hub knows about a topic and those who subscribe to it, as values for JSON and HTML.

Anybody may ask. Without the admin token callbacks are shown as scheme and host only, and so is the
query of a topic unless the asker named it: both may hold what only their owner should know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from identifiers import InvalidTopic, identify
from push_hub.following import Following, Way
from push_hub.hub import Hub
from push_hub.lifecycle import RECEIVING
from push_hub.masking import masked_callback, masked_topic
from push_hub.store.records import Progress, SubscriptionRecord, TopicRecord

VERSIONS: Final = 20
Values = dict[str, Any]


def revealing(trusted: bool, asked: str | None) -> Callable[[str], str]:
    """How topics are shown to somebody who is trusted, or named the topic `asked` (canonical)."""

    def show(url: str) -> str:
        if trusted:
            return url
        try:
            known = asked is not None and identify(url).canonical == asked
        except InvalidTopic:
            known = False
        return url if known else masked_topic(url)

    return show


async def overview(hub: Hub, topic: TopicRecord, show: Callable[[str], str]) -> Values:
    """A line about a topic."""
    return {
        "id": topic.id,
        "topic": show(topic.canonical),
        "subscribers": await hub.store.subscribers(topic.id, hub.context.clock()),
        "streams": hub.streams.watching(topic.id),
        "last_update_at": topic.last_update_at,
        "last_fetch_at": topic.last_fetch_at,
        "result": _result(topic),
    }


async def details(
    hub: Hub,
    topic: TopicRecord,
    *,
    show: Callable[[str], str],
    trusted: bool,
    after: int,
    limit: int,
) -> Values:
    """Everything about a topic; of its subscriptions those after number `after`."""
    store = hub.store
    about = await overview(hub, topic, show)
    subscriptions = await store.subscriptions(topic_id=topic.id, after=after, limit=limit + 1)
    following = await store.following(topic.id)
    now = hub.context.clock()
    latest = await store.progress(topic.id, now)
    spellings = [show(each) for each in await store.spellings(topic.id)]
    return {
        **about,
        "now": now,
        "sid": topic.sid.hex(),
        "rid": topic.rid.hex(),
        "spellings": list(dict.fromkeys(spellings)),
        "watched": _watched(hub, topic, following, about["subscribers"]),
        "following": None if following is None else _following(following, show),
        "fetch": {
            "url": show(topic.fetch_url),
            "last_at": topic.last_fetch_at,
            "result": about["result"],
            "pings": topic.ping_serial,
            "fetched_pings": topic.fetched_serial,
            "failures_in_a_row": topic.fetch_failures,
            "rechecks": topic.rechecks,
            "next_at": topic.fetch_due,
            "etag": topic.etag,
            "last_modified": topic.last_modified,
            "content_type": topic.content_type,
        },
        "last_ping_at": topic.last_ping_at,
        "latest": None if latest is None else _latest(latest),
        "versions": [
            {
                "position": str(each.position),
                "origin": str(each.origin),
                "content_type": each.content_type,
                "bytes": each.size,
                "recorded_at": each.recorded_at,
            }
            for each in await store.versions(topic.id, VERSIONS)
        ],
        "subscriptions": [_subscription(each, show, trusted) for each in subscriptions[:limit]],
        "next_subscriptions": subscriptions[limit - 1].id if len(subscriptions) > limit else None,
    }


def _latest(latest: Progress) -> Values:
    """Numbers only: the callbacks are shown to the operator alone."""
    return {
        "position": str(latest.position),
        "new_entries": latest.new_entries,
        "delivered": latest.delivered,
        "owed": latest.owed,
        "retrying": latest.retrying,
        "next_at": latest.next_at,
    }


def _result(topic: TopicRecord) -> str:
    if topic.last_error is not None:
        return topic.last_error
    return "never fetched" if topic.last_fetch_at is None else "ok"


def _watched(
    hub: Hub, topic: TopicRecord, following: Following | None, subscribers: int
) -> list[str]:
    """The ways by which the hub learns of news, in words."""
    if words := hub.context.carrying.brings(identify(topic.canonical)):
        return [f"carried here: {words}"]
    ways = []
    if topic.last_ping_at is not None or (following and following.way is Way.PINGED):
        ways.append("its publisher pings this hub")
    if following is not None and following.way is not Way.PINGED:
        ways.append(_followed(following))
    every = hub.settings.poll_every
    if every is not None and subscribers:
        ways.append(f"polled every {every:.0f} s")
    return ways or ["nothing yet: no ping has come for it"]


def _followed(following: Following) -> str:
    host = masked_topic(following.hub or "unknown")
    because = f", because {following.reason}" if following.reason else ""
    if following.way is Way.HUB:
        return f"its own hub pushes to this one: {host}"
    if following.way is Way.ASKED:
        return f"its own hub was asked and has not confirmed yet: {host}"
    if following.way is Way.POLLED:
        every = f" every {following.interval:.0f} s" if following.interval else ""
        return f"polled{every}{because}"
    if following.way is Way.CARRIED:
        return f"carried here until a moment ago: {following.reason}"
    return "about to be fetched, to see which hub it names"


def _following(following: Following, show: Callable[[str], str]) -> Values:
    """Its token and secret are for the other hub alone."""
    return {
        "way": str(following.way),
        "hub": masked_topic(following.hub) if following.hub else None,
        "topic_at_hub": show(following.self_url) if following.self_url else None,
        "since": following.since,
        "lease_until": following.lease_until,
        "poll_interval": following.interval,
        "reason": following.reason,
        "last_push_at": following.last_push_at,
    }


def _subscription(record: SubscriptionRecord, show: Callable[[str], str], trusted: bool) -> Values:
    return {
        "id": record.id,
        "topic": show(record.topic),
        "callback": record.callback if trusted else masked_callback(record.callback),
        "state": str(record.state),
        "receiving": record.state in RECEIVING,
        "expires_at": record.expires_at,
        "created_at": record.created_at,
        "verified_at": record.verified_at,
        "new_entries_only": record.new_entries_only,
        "signed": record.secret is not None,
        "waiting": record.waiting,
        "failures_in_a_row": record.failures,
        "last_success_at": record.last_success_at,
        "last_failure_at": record.last_failure_at,
        "last_failure": record.last_failure,
        "reason": record.reason,
        "ended_at": record.ended_at,
    }
