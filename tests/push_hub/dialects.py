"""The three dialects a subscriber may speak, and requests in each of them."""

import pytest

from tests.push_hub.world import until, until_async

TOPIC = "http://127.0.0.1:1/feed"

DIALECTS = {
    "websub": {},
    # PubSubHubbub 0.4 knows no parameter that WebSub does not; its clients check sha1.
    "push-0.4": {"signature": "sha1"},
    "push-0.3": {"verify": "async", "verify_token": "t0k\u00e9n"},
    "push-0.3-sync": {"verify": "sync", "verify_token": "t0k\u00e9n"},
}
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


async def ask(w, dialect, mode="subscribe", topic=TOPIC, path="/cb", **more):
    """A request in a dialect, answered as that dialect wants it and settled."""
    status, text = await w.post(
        mode=mode, topic=topic, callback=w.reader.url + path, **(DIALECTS[dialect] | more)
    )
    assert status == (204 if dialect == "push-0.3-sync" else 202), text
    await until_async(w.settled, "the verification")


async def change(w, body, path="/t", content_type="text/plain; charset=utf-8"):
    """Publish a new version and wait for the hub to have it."""
    updates = w.hub.counters["updates"]
    await w.ping(w.site.put(path, body, content_type))
    await until(lambda: w.hub.counters["updates"] > updates, "the update")
