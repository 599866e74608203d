"""The page and its API. docs/http-api.md has every path."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Meta

import psph
from demo import conversations, layout
from demo.conversations import ChatRefused
from demo.faults import Faults
from demo.guarding import guard, headers
from demo.pages import Jid, Url, read_wishes
from demo.passing import Passing
from demo.showing import Showing, TooManyPages
from demo.website import LONGEST
from demo.world import World
from psph.errors import PsphError

WEB = Path(psph.__file__).parent / "web"
_LARGEST = 64 << 10
_PAGE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:"

S = TypeVar("S", bound=msgspec.Struct)


class NewEntry(msgspec.Struct, forbid_unknown_fields=True):
    topic: Url
    text: Annotated[str, Meta(min_length=1, max_length=LONGEST)]


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    me: Jid
    to: Jid
    text: str
    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


class Switch(msgspec.Struct, forbid_unknown_fields=True):
    up: bool


class Api:
    """What pages ask for."""

    def __init__(self, world: World, showing: Showing) -> None:
        self._world = world
        self._showing = showing
        self._faults = Faults(world)

    def application(self, token: str | None) -> web.Application:
        """Asks for the token unless there is none."""
        app = web.Application(middlewares=[_refusals, guard(token)], client_max_size=_LARGEST)
        app.on_response_prepare.append(headers(map(self._world.hub, layout.DOMAINS)))
        app.on_shutdown.append(self._end)
        app.cleanup_ctx.append(self._running)
        router = app.router
        router.add_get("/", self._index)
        router.add_static("/web", WEB)
        router.add_get("/docs/http-api.md", self._documentation)
        router.add_get("/report/{file:[a-z0-9_.-]*}", self._report)
        router.add_get("/healthz", self._healthz)
        router.add_get("/api/world", self._get_world)
        router.add_get("/api/events", self._events)
        router.add_put("/api/pages/{page}", self._put_page)
        router.add_put("/api/pages/{page}/tabs/{tab}", self._put_page)
        router.add_delete("/api/pages/{page}/tabs/{tab}", self._delete_tab)
        router.add_post("/api/topics/publish", self._publish)
        router.add_post("/api/chat", self._chat)
        router.add_post("/api/network/links/{link}", self._switch_link)
        router.add_post("/api/network/nodes/{node}", self._switch_node)
        Passing(self._world).add(app)
        return app

    async def _running(self, app: web.Application) -> AsyncIterator[None]:
        async with self._showing:
            yield

    async def _end(self, app: web.Application) -> None:
        """Before the server waits for its requests: streams would not end by themselves."""
        self._showing.close_pages()

    # The page

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(WEB / "index.html")

    async def _documentation(self, request: web.Request) -> web.StreamResponse:
        # As text: browsers show that, and offer Markdown to be saved.
        return web.FileResponse(
            WEB / "http-api.md", headers={"Content-Type": "text/plain; charset=utf-8"}
        )

    async def _report(self, request: web.Request) -> web.StreamResponse:
        """What `psph report` has written to the directory `report` of our data."""
        file = self._showing.report / (request.match_info["file"] or "report.html")
        if not file.is_file():
            raise web.HTTPNotFound(text="there is no report yet\n")
        return web.FileResponse(file, headers={"Content-Security-Policy": _REPORT_POLICY})

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response(self._showing.status())

    async def _get_world(self, request: web.Request) -> web.Response:
        return web.json_response(self._world.describe())

    # Pages and their events

    async def _put_page(self, request: web.Request) -> web.Response:
        page, tab = _page_and_tab(request)
        self._showing.wish(page, read_wishes(await request.read()), tab)
        return web.json_response({"page": page})

    async def _delete_tab(self, request: web.Request) -> web.Response:
        self._showing.close_tab(*_page_and_tab(request))
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        page = self._showing.page(_page_name(request.query.get("page", "")))
        # The header first: a browser that reconnects sends the URL it began with.
        after = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        try:
            await response.write(b"retry: 1000\n")
            last = int(after) if after.isdecimal() and len(after) < 18 else None
            async for event in page.events(last):
                await response.write(event)
        except (ConnectionError, TimeoutError):
            pass  # the browser left
        return response

    # Doing something

    async def _publish(self, request: web.Request) -> web.Response:
        entry = _read(await request.read(), NewEntry)
        url = f"{self._local(entry.topic)}/publish"
        try:
            async with self._world.session.post(url, data=entry.text.encode()) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            raise PsphError("the website does not answer") from None
        if answer.status != 201:
            raise PsphError(text.strip())
        return web.Response(text=text, status=201, content_type="application/json")

    def _local(self, topic: str) -> str:
        for domain in layout.DOMAINS:
            found = self._world.topics(domain).get(topic)
            if found is not None:
                return found
        raise ValueError("no website of this world has that topic")

    async def _chat(self, request: web.Request) -> web.Response:
        message = _read(await request.read(), NewMessage)
        try:
            sent = await conversations.send(
                self._world, message.me, message.to, message.text, message.id
            )
        except ChatRefused as refusal:
            return _error(refusal.status, str(refusal))
        except (aiohttp.ClientError, TimeoutError):
            domain = conversations.domain_of(message.me)
            raise PsphError(f"the PSPH of {domain} does not answer: is it stopped?") from None
        return web.json_response(sent)

    async def _switch_link(self, request: web.Request) -> web.Response:
        link, switch = request.match_info["link"], _read(await request.read(), Switch)
        try:
            await self._faults.link(link, switch.up)
        except KeyError:
            return _error(404, "there is no such link")
        return web.json_response({"link": link, "up": switch.up})

    async def _switch_node(self, request: web.Request) -> web.Response:
        node, switch = request.match_info["node"], _read(await request.read(), Switch)
        try:
            await self._faults.node(node, switch.up)
        except KeyError:
            return _error(404, "there is no such node")
        return web.json_response({"node": node, "up": switch.up})


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors of ours become answers: `{"error": "one line"}`."""
    try:
        return await handler(request)
    except ValueError as error:
        return _error(400, str(error))
    except TooManyPages as error:
        return _error(503, str(error))
    except PsphError as error:
        return _error(502, str(error))


def _error(status: int, text: str) -> web.Response:
    # It may quote what was sent, or what a part said.
    return web.json_response({"error": " ".join(text.split())[:500]}, status=status)


def _page_name(text: str) -> str:
    if not _PAGE.fullmatch(text):
        raise ValueError("a page or tab is called by 1 to 64 letters, digits, - and _ it chose")
    return text


def _page_and_tab(request: web.Request) -> tuple[str, str]:
    tab = request.match_info.get("tab")
    return _page_name(request.match_info["page"]), _page_name(tab) if tab else ""


def _read(body: bytes, kind: type[S]) -> S:
    # Its errors are ValueErrors, and say what is wrong.
    return msgspec.json.decode(body, type=kind)
