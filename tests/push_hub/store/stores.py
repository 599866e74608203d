"""A store and the shortest ways to use it, for the tests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from identifiers import identify
from push_hub.requests import SubscriptionRequest
from push_hub.store import SqliteStore
from push_hub.store.records import Caps, DeliveryResult, NewUpdate, Origin, Outcome

CAPS = Caps(subscriptions=10_000, subscriptions_per_host=10_000, topics=1_000)
TOPIC = "http://example.com/feed"
BOUNDS = {"max_waiting": 100, "history": 10, "history_bytes": 1 << 20}


def run(main):
    """Run a test's coroutine."""
    return asyncio.run(main)


@asynccontextmanager
async def opened(path):
    store = await SqliteStore.open(path / "hub.sqlite")
    try:
        yield store
    finally:
        await store.close()


def wish(callback="http://reader.example/cb", topic=TOPIC, mode="subscribe", **more):
    return SubscriptionRequest(mode, identify(topic), callback, **more)


async def subscribe(store, callback="http://reader.example/cb", *, lease=1000, now=0.0, **more):
    asked = await store.request(wish(callback, **more), lease, CAPS, now)
    return await store.confirm(asked, now)


async def publish(store, body=b"x", *, origin=Origin.FETCHED, topic=TOPIC, now=1.0, **more):
    found = await store.ensure_topic(identify(topic), CAPS, now)
    new = NewUpdate(found.id, origin, "text/plain", body, body, "0" * 32, **more)
    return await store.record(new, now, **BOUNDS)


async def claim(store, now=1.0, room=1000, results=(), per_host=None, default=1000):
    return await store.exchange(list(results), now, room, per_host or {}, default)


def result(delivery, outcome=Outcome.DELIVERED, at=1.0, **more):
    return DeliveryResult(delivery, outcome, at, **more)
