"""What the operator can see and do over HTTP, below /admin, with the admin token.

Lists come in pages: `after` is the last id of the page before, `limit` at most 1,000; `next` in the
answer leads on. Everything is JSON; callbacks are shown in full, secrets never.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from identifiers import InvalidPosition, InvalidTopic, Position, identify
from push_hub.errors import BadRequest
from push_hub.following import described
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.masking import masked_topic
from push_hub.store.records import SubscriptionRecord, TopicRecord, Waiting
from traces import LogEvent

_log = logging.getLogger(__name__)

MAX_PAGE: Final = 1_000
_ID: Final = "{id:[0-9]{1,18}}"
Values = dict[str, Any]
Handler = Callable[[Hub, web.Request], Awaitable[Values]]


def add_admin(app: web.Application) -> None:
    """Add the routes to the application of a hub. Without a token nobody gets in."""
    router = app.router
    router.add_get("/admin/topics", _guarded(topics))
    router.add_get("/admin/topic", _guarded(topic))
    router.add_get(f"/admin/topics/{_ID}", _guarded(topic))
    router.add_get("/admin/subscriptions", _guarded(subscriptions))
    router.add_get(f"/admin/subscriptions/{_ID}", _guarded(subscription))
    router.add_delete(f"/admin/subscriptions/{_ID}", _guarded(drop))
    router.add_get("/admin/queue", _guarded(queue))
    router.add_post("/admin/replay", _guarded(replay))


def _guarded(handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        hub = request.app[HUB]
        if not bears(request.headers.get("Authorization", ""), hub.settings.admin_token):
            hub.counters.add("admin_refused")
            raise web.HTTPUnauthorized(
                text="this needs the hub's admin token, as Authorization: Bearer TOKEN\n",
                headers={"WWW-Authenticate": "Bearer"},
            )
        values = await handler(hub, request)
        return web.json_response(values, headers={"Cache-Control": "no-store"})

    return answer


def bears(header: str, token: str) -> bool:
    """Whether an Authorization header has the token; takes the same time for right and wrong."""
    given = header.encode(errors="replace")
    return hmac.compare_digest(given, f"Bearer {token}".encode()) and bool(token)


async def topics(hub: Hub, request: web.Request) -> Values:
    """A page of topics."""
    after, limit = _page(request)
    found = await hub.store.topics(after=after, limit=limit)
    return _paged("topics", [_topic(each) for each in found], limit)


async def topic(hub: Hub, request: web.Request) -> Values:
    """One topic, by number or ?topic=URL: how it is followed, its spellings, its history."""
    which = request.match_info.get("id") or request.query.get("topic", "")
    record = await _topic_of(hub, which)
    following = await hub.store.following(record.id)
    return {
        **_topic(record),
        "subscribers": await hub.store.subscribers(record.id, hub.context.clock()),
        "streams": hub.streams.watching(record.id),
        "spellings": await hub.store.spellings(record.id),
        "following": None if following is None else described(following),
        "versions": [
            {
                "position": str(each.position),
                "origin": str(each.origin),
                "content_type": each.content_type,
                "bytes": each.size,
                "recorded_at": each.recorded_at,
            }
            for each in await hub.store.versions(record.id, 100)
        ],
    }


async def subscriptions(hub: Hub, request: web.Request) -> Values:
    """A page of subscriptions, of one topic (its URL or number) or all."""
    after, limit = _page(request)
    topic_id = None
    if text := request.query.get("topic"):
        topic_id = (await _topic_of(hub, text)).id
    found = await hub.store.subscriptions(topic_id=topic_id, after=after, limit=limit)
    return _paged("subscriptions", [_subscription(each) for each in found], limit)


async def subscription(hub: Hub, request: web.Request) -> Values:
    """One subscription."""
    found = await hub.store.subscription_by_id(int(request.match_info["id"]))
    if found is None:
        raise web.HTTPNotFound(text=f"there is no subscription {request.match_info['id']}\n")
    return _subscription(found)


async def drop(hub: Hub, request: web.Request) -> Values:
    """End a subscription, and tell its callback why."""
    number = int(request.match_info["id"])
    reason = request.query.get("reason", "ended by the hub's operator")[:200]
    if await hub.store.subscription_by_id(number) is None:
        raise web.HTTPNotFound(text=f"there is no subscription {number}\n")
    ended = await hub.drop(number, reason)
    if ended is None:
        raise web.HTTPConflict(text=f"subscription {number} has ended already\n")
    _log.info(LogEvent("subscription.dropped", subscription=number, reason=reason))
    return _subscription(ended)


async def queue(hub: Hub, request: web.Request) -> Values:
    """A page of the deliveries that are owed."""
    after, limit = _page(request)
    found = await hub.store.queue(after=after, limit=limit)
    return _paged("deliveries", [_waiting(each) for each in found], limit)


async def replay(hub: Hub, request: web.Request) -> Values:
    """Owe an update once more: ?topic=URL[&position=P][&subscription=ID]; the latest by default."""
    record = await _topic_of(hub, request.query.get("topic", ""))
    only = None
    if text := request.query.get("subscription"):
        only = _number("subscription", text)
        found = await hub.store.subscription_by_id(only)
        if found is None or found.topic_id != record.id:
            raise web.HTTPNotFound(text=f"the topic has no subscription {only}\n")
    if text := request.query.get("position"):
        try:
            seq = await hub.store.find(record.id, Position.parse(text))
        except InvalidPosition as refusal:
            raise BadRequest(f"position: {refusal}") from None
    else:
        latest = await hub.store.latest(record.id)
        seq = None if latest is None else latest.seq
    owed = None if seq is None else await hub.replay(seq, only)
    if owed is None:
        raise web.HTTPNotFound(text="that update is not in the history of the topic\n")
    told = masked_topic(record.canonical)
    _log.info(LogEvent("update.replayed", topic=told, subscription=only, deliveries=owed))
    return {"deliveries": owed}


async def _topic_of(hub: Hub, text: str) -> TopicRecord:
    """A topic by its number or any of its spellings."""
    if re.fullmatch("[0-9]{1,18}", text):
        found = await hub.store.topic_by_id(int(text))
    else:
        try:
            found = await hub.store.topic(identify(text))
        except InvalidTopic as refusal:
            raise BadRequest(f"topic: {refusal}") from None
    if found is None:
        raise web.HTTPNotFound(text=f"this hub knows no topic {text}\n")
    return found


def _page(request: web.Request) -> tuple[int, int]:
    after = _number("after", request.query.get("after", "0"))
    limit = _number("limit", request.query.get("limit", "100"))
    return after, max(1, min(limit, MAX_PAGE))


def _number(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise BadRequest(f"{name} must be a number")
    return int(text)


def _paged(name: str, values: list[Values], limit: int) -> Values:
    return {name: values, "next": values[-1]["id"] if len(values) == limit else None}


def _topic(record: TopicRecord) -> Values:
    return {
        "id": record.id,
        "topic": record.canonical,
        "fetch_url": record.fetch_url,
        "content_type": record.content_type,
        "last_ping_at": record.last_ping_at,
        "last_fetch_at": record.last_fetch_at,
        "last_update_at": record.last_update_at,
        "last_error": record.last_error,
        "fetch_due": record.fetch_due,
        "fetch_failures": record.fetch_failures,
    }


def _subscription(record: SubscriptionRecord) -> Values:
    shown = (
        "id", "topic", "callback", "host", "lease_seconds", "expires_at", "created_at",
        "verified_at", "new_entries_only", "signature", "waiting", "failures", "last_success_at",
        "last_failure_at", "last_failure", "reason", "ended_at",
    )  # fmt: skip
    values = {name: getattr(record, name) for name in shown}
    return {**values, "state": str(record.state), "signed": record.secret is not None}


def _waiting(record: Waiting) -> Values:
    return {name: getattr(record, name) for name in Waiting.__slots__}
