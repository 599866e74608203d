"""The web around PSPHs, in the process of the test: websites, callbacks, browsers, publishers."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from tests.e2e.node_process import PATIENCE

BROUGHT = "the fabric brings it"


async def until(condition, say=lambda: ""):
    """Until a condition holds, which may be a coroutine function."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if asyncio.get_running_loop().time() > deadline:
            told = say()
            told = await told if asyncio.iscoroutine(told) else told
            raise AssertionError(f"it never came true: {told}")
        await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Post:
    """What a callback was sent."""

    headers: dict
    body: bytes

    @property
    def position(self):
        return self.headers["X-Hub-Delivery"].rpartition("-")[0]

    @property
    def content_type(self):
        return self.headers["Content-Type"]


@dataclass
class Callback:
    """Says yes to whatever it is asked."""

    url: str
    asked: list[dict] = field(default_factory=list)
    """Verifications."""
    denied: list[str] = field(default_factory=list)
    """Reasons."""
    posts: list[Post] = field(default_factory=list)

    @property
    def bodies(self):
        return [post.body for post in self.posts]


@dataclass
class Seen:
    """What a browser saw of a stream."""

    updates: list[dict] = field(default_factory=list)
    notices: list[tuple[str, dict]] = field(default_factory=list)

    @property
    def bodies(self):
        return [base64.b64decode(each["body_b64"]) for each in self.updates]

    @property
    def positions(self):
        return [each["position"] for each in self.updates]


class Around:
    """`async with Around(world) as around`: everything that is not a PSPH."""

    def __init__(self, world):
        self.world = world
        self.pages = {}
        self.fetches = []
        """Paths, one for each GET of a page."""
        self._callbacks = {}
        self._browsers = []

    async def __aenter__(self):
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/callback/{name}", self._call)
        app.router.add_get("/{path:.*}", self._get)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        )
        return self

    async def __aexit__(self, *_):
        for browser in self._browsers:
            browser.cancel()
        await asyncio.gather(*self._browsers, return_exceptions=True)
        await self._session.close()
        await self._runner.cleanup()

    # Websites

    def site(self, host, path):
        """The URL of a page by its public name, which only the embedded name server knows."""
        return f"http://{host}:{self.port}{path}"

    def put(self, path, body, content_type="application/atom+xml", **headers):
        self.pages[path] = (body, {"Content-Type": content_type, **headers})

    async def _get(self, request):
        self.fetches.append(request.path)
        if request.path not in self.pages:
            return web.Response(status=404)
        body, headers = self.pages[request.path]
        return web.Response(body=body, headers=headers)

    # Callbacks

    def callback(self, name):
        url = f"http://127.0.0.1:{self.port}/callback/{name}"
        return self._callbacks.setdefault(name, Callback(url))

    async def _call(self, request):
        callback = self._callbacks[request.match_info["name"]]
        if request.method == "POST":
            callback.posts.append(Post(dict(request.headers), await request.read()))
            return web.Response(status=204)
        if request.query["hub.mode"] == "denied":
            callback.denied.append(request.query.get("hub.reason", ""))
            return web.Response()
        callback.asked.append(dict(request.query))
        return web.Response(text=request.query["hub.challenge"])

    # What subscribers and publishers do

    def hub(self, key):
        """The URL of a PSPH; or `key` is one, of another hub."""
        return key if key.startswith("http://") else self.world.hub(key)

    async def form(self, hub, **form):
        """Send a form to a hub; its answer."""
        given = {f"hub.{name}": str(value) for name, value in form.items()}
        async with self._session.post(hub, data=given) as answer:
            return answer.status, await answer.text()

    async def _form(self, key, **form):
        return await self.form(f"{self.hub(key)}/hub", **form)

    async def subscribe(self, key, topic, callback, **more):
        """Returns when the callback is subscribed at a hub."""
        more = {"mode": "subscribe", "verify": "sync", **more}
        answer = await self._form(key, topic=topic, callback=callback.url, **more)
        assert answer[0] == 204, answer

    async def ask(self, key, topic, callback):
        """Only ask to be subscribed, as everybody does nowadays."""
        answer = await self._form(key, mode="subscribe", topic=topic, callback=callback.url)
        assert answer[0] == 202, answer

    async def unsubscribe(self, key, topic, callback):
        await self.subscribe(key, topic, callback, mode="unsubscribe")

    async def ping(self, key, topic):
        assert (await self._form(key, mode="publish", url=topic))[0] == 204

    async def publish(self, key, topic, body, content_type="text/plain"):
        """Direct content; its Position."""
        status, answer = await self.post(key, topic, body, content_type)
        assert status == 201, answer
        return json.loads(answer)["position"]

    async def post(self, key, topic, body, content_type="text/plain"):
        async with self._session.post(
            f"{self.world.hub(key)}/publish",
            params={"topic": topic},
            data=io.BytesIO(body),
            headers={
                "Authorization": f"Bearer {self.world.token(key)}",
                "Content-Type": content_type,
            },
        ) as answer:
            return answer.status, await answer.text()

    async def get(self, url, **headers):
        """Status, headers and body, whatever they are."""
        async with self._session.get(url, headers=headers) as answer:
            return answer.status, answer.headers, await answer.read()

    # Browsers

    @asynccontextmanager
    async def browser(self, key, topic):
        """A browser that watches a topic, and comes back when it is cut off."""
        seen, began = Seen(), asyncio.Event()
        task = asyncio.create_task(self._watch(key, topic, seen, began))
        self._browsers.append(task)
        try:
            async with asyncio.timeout(PATIENCE):
                await began.wait()
            yield seen
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, key, topic, seen, began):
        last = None
        while True:
            headers = {} if last is None else {"Last-Event-ID": last}
            try:
                async with self._session.get(
                    f"{self.hub(key)}/stream", params={"topic": topic}, headers=headers,
                    read_bufsize=8 << 20,
                ) as stream:  # fmt: skip
                    assert stream.status == 200, await stream.text()
                    began.set()
                    kind = None
                    async for line in stream.content:
                        if line.startswith(b"event: "):
                            kind = line[7:].strip().decode()
                        elif line.startswith(b"id: "):
                            last = line[4:].strip().decode()
                        elif line.startswith(b"data: "):
                            data = json.loads(line[6:])
                            if kind is None:
                                seen.updates.append(data)
                            else:
                                seen.notices.append((kind, data))
                            kind = None
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)

    # What PSPHs say of themselves

    async def status(self, key):
        return await asyncio.to_thread(self.world.proxies[key].ask, "/proxy/status")

    async def wanted(self, key, topic):
        """How a topic that is wanted there comes there."""
        return (await self.status(key))["wanted_here"].get(topic, {})

    async def published(self, key, topic):
        return (await self.status(key))["published"].get(topic)

    async def topic(self, key, topic):
        """What the diagnostics of a hub say of a topic."""
        async with self._session.get(
            f"{self.world.hub(key)}/admin/topic",
            params={"topic": topic},
            headers={"Authorization": f"Bearer {self.world.token(key)}"},
        ) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def is_brought(self, key, topic):
        """Until the fabric brings a topic there."""

        async def brought():
            return (await self.wanted(key, topic)).get("state") == BROUGHT

        await until(brought, lambda: self.status(key))

    async def is_released(self, topic, origin, *readers):
        """Until neither the readers' PSPHs nor the origin's have to do with a topic any more."""

        async def released():
            if await self.published(origin, topic) is not None:
                return False
            return not any([await self.wanted(each, topic) for each in readers])

        await until(released, lambda: self.status(origin))


def run(world, story):
    """Tell a story in a world; it may not take for ever."""

    async def told():
        async with Around(world) as around:
            await story(around)

    asyncio.run(told())
