"""Logs: one JSON object a line, whatever happens, and no secret in any of them."""

import io
import json
import logging
import os

import pytest
from aiohttp import web

from push_hub.logs import Background, JsonLines, event, log_to
from tests.push_hub.world import run, until, world

SECRET = "tell-nobody-of-this"


@pytest.fixture
def logged():
    """Lines written while the test runs; the loggers are as before afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    root.handlers = []
    handler = log_to(stream, logging.DEBUG)

    def lines():
        handler.flush()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield lines
    handler.close()
    root.handlers, root.level = before, level


def test_a_line_is_an_object(logged):
    log = logging.getLogger("push_hub.test")
    event(log, "said", words="one\ntwo", nothing=None)
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("failed: %s", "so")
    said, failed = logged()
    assert said["event"] == "said"
    assert said["words"] == "one\ntwo"
    assert "nothing" not in said
    assert (failed["level"], failed["event"]) == ("error", "failed: so")
    assert "ValueError" in failed["traceback"]


def test_no_secret_is_in_them_whatever_happens(tmp_path, logged):
    async def main():
        async with world(tmp_path, admin_token=f"{SECRET}-admin") as w:

            async def broken(request):
                return web.Response(status=500)

            w.reader.receive = broken
            topic = w.site.put("/t", b"1") + f"?token={SECRET}"
            await w.subscribe(topic, f"/cb/{SECRET}", secret=SECRET)
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_dropped"] == 1)
            await w.ping(f"{w.site.url}/nowhere?token={SECRET}")
            await w.subscribe(f"{w.site.url}/gone?{SECRET}", f"/cb2/{SECRET}", secret=SECRET)
            await w.ping(f"{w.site.url}/gone?{SECRET}")
            await until(lambda: w.hub.counters["fetch_failures"] >= 1)
            await w.post(mode="nonsense", secret=SECRET)
            await w.hub.drop(1, "enough")
            async with w.client.get(
                f"{w.hub_url}/admin/topics", headers={"Authorization": f"Bearer {SECRET}-admin"}
            ) as answer:
                assert answer.status == 200

    run(main())
    lines = logged()
    events = {line["event"] for line in lines}
    assert {"subscribed", "update", "delivery", "fetch failed", "ended"} <= events
    assert SECRET not in json.dumps(lines)


def test_a_log_that_nobody_reads_stops_nothing():
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as writer:
        handler = Background(writer, most=100)
        handler.setFormatter(JsonLines())
        log = logging.Logger("push_hub.test")
        log.addHandler(handler)
        for n in range(5_000):  # more than pipe and queue hold
            event(log, "said", n=n, words="x" * 100)
        found = []
        while not (line := json.loads(reader.readline()))["event"].startswith("log lines"):
            found.append(line["n"])
        assert found == list(range(len(found)))
        assert line["count"] > 0
        handler.close()
