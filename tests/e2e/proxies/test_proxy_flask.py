"""A site whose hub is somebody else's software: Flask-WebSub, with Celery and Redis behind it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sqlite3
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

import pytest

from tests.e2e.node_process import PATIENCE, ROOT
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B
from tests.ports import free_port
from tests.push_hub.feeds.documents import atom

MISSING = [
    *(["redis-server"] if shutil.which("redis-server") is None else []),
    *(each for each in ("flask_websub", "celery", "redis") if find_spec(each) is None),
]


@asynccontextmanager
async def process(*arguments, **options):
    """Killed at the end, whatever it does."""
    started = await asyncio.create_subprocess_exec(
        *arguments, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL, **options
    )
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await started.communicate()


@asynccontextmanager
async def flask_hub(directory):
    """The URL of the hub."""
    redis, database = free_port(), directory / "flask.sqlite"
    python = [sys.executable, "-m", "tests.e2e.proxies.flask_hub"]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            process("redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "",
                    "--dir", str(directory), stdout=asyncio.subprocess.DEVNULL)
        )  # fmt: skip
        await until(lambda: _listens(redis))
        serving = await stack.enter_async_context(
            process(*python, "serve", str(redis), str(database), stdout=asyncio.subprocess.PIPE)
        )
        await stack.enter_async_context(
            process(*python, "work", str(redis), str(database), stdout=asyncio.subprocess.DEVNULL)
        )
        async with asyncio.timeout(PATIENCE):
            url = (await serving.stdout.readline()).decode().strip()
        assert url, "Flask-WebSub ended"
        yield url


def _subscriptions(database):
    with (
        contextlib.suppress(sqlite3.OperationalError),  # the table is made with the first one
        contextlib.closing(sqlite3.connect(database, timeout=30)) as connection,
    ):
        return connection.execute("SELECT count(*) FROM hub").fetchone()[0]


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_a_reader_follows_a_site_whose_hub_is_flask_websub(world, tmp_path):
    async def story(around):
        async with flask_hub(tmp_path) as hub:
            topic, reader = around.site(f"news.{B}", "/flask.xml"), around.callback("flask")
            links = f'<{topic}>; rel="self", <{hub}>; rel="hub"'
            around.put("/flask.xml", atom(("a", "1")), Link=links)
            await around.subscribe(A, topic, reader)
            await around.is_brought(A, topic)

            async def follows():
                return (await around.topic(B, topic))["following"]["way"] == "hub"

            await until(follows, lambda: around.topic(B, topic))
            # It notes the subscription after our answer to its question.
            await until(lambda: _subscriptions(tmp_path / "flask.sqlite"))
            assert (await around.topic(B, topic))["following"]["hub"] == hub
            newer = [atom(("b", "2"), ("a", "1")), atom(("c", "3"), ("b", "2"), ("a", "1"))]
            for count, body in enumerate(newer, 1):
                around.put("/flask.xml", body, Link=links)
                # The site pings its own hub, and ours hears of it as a subscriber.
                assert (await around.form(hub, mode="publish", topic=topic))[0] == 202
                await until(
                    lambda count=count: len(reader.posts) == count, lambda: around.topic(B, topic)
                )
            assert reader.bodies == newer
            at_b = [each["position"] for each in (await around.topic(B, topic))["versions"]]
            assert [post.position for post in reader.posts] == at_b[1::-1]
            await around.unsubscribe(A, topic, reader)
            await around.is_released(topic, B, A)

    run(world, story)
