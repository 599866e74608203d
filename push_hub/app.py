"""The routes of a hub, as an aiohttp application to serve or to mount in somebody's own."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver
from prometheus_client import CollectorRegistry

from identifiers import Topic
from push_hub.addresses import client_address, client_key
from push_hub.admin import add_admin
from push_hub.carrier import Carrier
from push_hub.errors import AddressRefused, BadRequest, Busy, Refused, StoreError
from push_hub.fetching import passable_type
from push_hub.guide import Guide
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.limits import RateLimit
from push_hub.metrics import CONTENT_TYPE
from push_hub.pages import add_pages
from push_hub.reader_routes import add_readers
from push_hub.requests import Ping, SubscriptionRequest, read_form, read_request, web_topic
from push_hub.settings import HubSettings
from push_hub.siblings import Siblings
from push_hub.store import SqliteStore
from push_hub.stream_routes import add_stream
from push_hub.upstream_routes import add_upstream
from traces import LogEvent, TraceSink

_log = logging.getLogger(__name__)

RATE: web.AppKey[RateLimit] = web.AppKey("rate", RateLimit)

_FORM = "application/x-www-form-urlencoded"


def create_app(
    settings: HubSettings,
    data: Path,
    *,
    trace: TraceSink | None = None,
    node: str = "hub",
    domain: str = "local",
    resolver: AbstractResolver | None = None,
    started: Callable[[Hub], None] | None = None,
    carrier: Carrier | None = None,
    guide: Guide | None = None,
    siblings: Siblings | None = None,
    registry: CollectorRegistry | None = None,
    power_safe: bool = False,
) -> web.Application:
    """A hub whose database is in the directory `data`, which exists. With `power_safe`, what is
    answered with success is on the disk.

    It starts and stops with the application. `started` is called with the hub once it runs and
    before anything is served; it may give it a carrier that needs to know the hub (`Hub.carry`).
    `registry` takes the hub's metrics, for the component that serves them (after
    `Hub.refresh_metrics`); here they are at /metrics only with `settings.public_metrics`.
    """

    async def running(app: web.Application) -> AsyncIterator[None]:
        store = await SqliteStore.open(data / "hub.sqlite", power_safe=power_safe)
        try:
            hub = Hub(
                settings, store, trace=trace, node=node, domain=domain, resolver=resolver,
                carrier=carrier, guide=guide, siblings=siblings, registry=registry,
            )  # fmt: skip
            async with hub:
                app[HUB] = hub
                if started is not None:
                    started(hub)
                yield
        finally:
            await store.close()

    app = web.Application(
        client_max_size=max(settings.max_form, settings.max_body), middlewares=[_refusals]
    )
    app[RATE] = RateLimit(settings.client_rate)
    app.cleanup_ctx.append(running)
    app.on_shutdown.append(_end_streams)
    app.router.add_post("/hub", post_hub)
    app.router.add_get("/hub", get_hub)
    app.router.add_post("/publish", post_content)
    app.router.add_get("/healthz", healthz)
    if settings.public_metrics:
        app.router.add_get("/metrics", metrics)
    add_stream(app)
    add_readers(app)
    add_upstream(app)
    add_admin(app)
    add_pages(app, resolver)
    return app


async def _end_streams(app: web.Application) -> None:
    """Before the server waits for its requests to end: streams would not end by themselves."""
    app[HUB].streams.close()


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Errors with a name become answers with a reason, in plain text."""
    hub = request.app[HUB]
    client = client_address(
        request.remote or "",
        request.headers.getall("X-Forwarded-For", ()),
        hub.settings.trusted_proxies,
    )
    wait = request.app[RATE].take(client_key(client), hub.context.clock())
    if wait:
        hub.counters.add("requests_limited")
        text = "too many requests from your address: slow down\n"
        return web.Response(status=429, text=text, headers={"Retry-After": str(int(wait) + 1)})
    try:
        return await handler(request)
    except (BadRequest, AddressRefused) as refusal:
        return web.Response(status=400, text=f"{refusal}\n")
    except Refused as refusal:
        return web.Response(status=403, text=f"{refusal}\n")
    except Busy as refusal:
        return web.Response(status=429, text=f"{refusal}\n", headers={"Retry-After": "60"})
    except StoreError as error:
        _log.error(LogEvent("store.failed", reason=error))
        text = "the hub cannot store anything right now: try again later\n"
        return web.Response(status=503, text=text, headers={"Retry-After": "30"})


async def get_hub(request: web.Request) -> web.Response:
    """A person followed rel=hub."""
    text = "This is a WebSub hub. POST hub.mode, hub.topic and hub.callback here to subscribe.\n"
    return web.Response(text=text)


async def post_hub(request: web.Request) -> web.Response:
    """Subscribe, unsubscribe and publish."""
    hub = request.app[HUB]
    if request.content_type not in (_FORM, "application/octet-stream"):
        raise BadRequest(f"send the form as {_FORM}")
    limit = hub.settings.max_form
    if (request.content_length or 0) > limit:
        raise web.HTTPRequestEntityTooLarge(limit, request.content_length or 0)
    form = read_form(await read_body(request, limit))
    wish = read_request(form, hub.context.naming.topic)
    if isinstance(wish, Ping):
        await hub.ping(wish.topics)
        return web.Response(status=204)
    return await _subscription(hub, wish)


async def read_body(request: web.Request, limit: int) -> bytes:
    """All of it, within the bounds of size and time."""
    body = bytearray()
    try:
        async with asyncio.timeout(request.app[HUB].settings.body_timeout):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > limit:
                    raise web.HTTPRequestEntityTooLarge(limit, len(body))
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body took too long to arrive\n") from None
    except (aiohttp.ClientPayloadError, aiohttp.http.HttpProcessingError) as error:
        raise BadRequest("the body breaks off, or is not encoded as it says") from error
    return bytes(body)


async def _subscription(hub: Hub, wish: SubscriptionRequest) -> web.Response:
    try:
        verification = await hub.subscribe(wish)
    except Refused as refusal:
        if wish.synchronous:
            raise
        # The form was right and the answer says so; the denial goes to whoever owns the callback.
        hub.deny(wish, str(refusal))
        return web.Response(status=202)
    if not wish.synchronous:
        return web.Response(status=202)
    reason = await verification
    if reason is not None:
        return web.Response(status=409, text=f"{reason}\n")
    return web.Response(status=204)


async def post_content(request: web.Request) -> web.Response:
    """Content from its publisher: POST /publish?topic=URL with a bearer token."""
    hub = request.app[HUB]
    topic = web_topic(request.query.get("topic", ""), "topic")
    if not may_publish(hub, topic, request.headers.get("Authorization", "")):
        text = "a token for this topic is needed: send Authorization: Bearer TOKEN\n"
        return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
    if not hub.settings.serves_host(topic.host):
        raise Refused(f"this hub does not serve topics of {topic.host}")
    if (request.content_length or 0) > hub.settings.max_body:
        raise web.HTTPRequestEntityTooLarge(hub.settings.max_body, request.content_length or 0)
    body = await read_body(request, hub.settings.max_body)
    content_type = passable_type(request.headers.get("Content-Type"))
    recorded = await hub.publish(topic, content_type, body)
    assert recorded is not None  # only updates that bring a position can be known
    return web.json_response({"position": str(recorded.update.position)}, status=201)


def may_publish(hub: Hub, topic: Topic, header: str) -> bool:
    """Compares every token, in constant time each."""
    given = header.encode(errors="replace")
    allowed = False
    for publisher in hub.settings.publishers:
        right = hmac.compare_digest(given, f"Bearer {publisher.token}".encode())
        allowed |= right and topic.canonical.startswith(publisher.prefix)
    return allowed


async def healthz(request: web.Request) -> web.Response:
    """Well when the database answers."""
    await request.app[HUB].store.last_seq()
    return web.Response(text="ok\n")


async def metrics(request: web.Request) -> web.Response:
    """For Prometheus."""
    hub = request.app[HUB]
    body = await hub.context.metrics.exposition(hub.store)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
