"""The pages at their paths: /, /hubs, /find, /topics, /topics/ID. All links in them are relative,
so that a hub mounted in another application has working pages."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import re
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Final

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver

from identifiers import InvalidTopic, Topic, identify
from push_hub.addresses import client_address, client_key
from push_hub.connecting import USER_AGENT, guarded_session
from push_hub.errors import BadRequest, FetchFailed, Refused
from push_hub.fetching import fetch
from push_hub.hub import Hub
from push_hub.keys import HUB
from push_hub.limits import RateLimit
from push_hub.naming import is_web
from push_hub.pages import diagnostics
from push_hub.pages.finding import look
from push_hub.pages.rendering import message_page, topic_page, topics_page
from push_hub.pages.serving import WatchPage, files, html, json_text
from push_hub.settings import Rate
from push_hub.store.records import TopicRecord

_SESSION: Final[web.AppKey[aiohttp.ClientSession]] = web.AppKey(
    "find_session", aiohttp.ClientSession
)
_FINDS: Final[web.AppKey[RateLimit]] = web.AppKey("find_rate", RateLimit)
_QUESTIONS: Final[web.AppKey[RateLimit]] = web.AppKey("question_rate", RateLimit)
_FIND_RATE: Final = Rate(per_second=1.0, burst=20)
_FINDS_AT_ONCE: Final = 8
# A page of diagnostics is many questions to the store.
_QUESTION_RATE: Final = Rate(per_second=5.0, burst=50)
_LISTED: Final = 100


def add_pages(app: web.Application, resolver: AbstractResolver | None) -> None:
    """Add the pages to the application of a hub, which has started when they are asked for."""

    async def session(app: web.Application) -> AsyncIterator[None]:
        hub = app[HUB]
        app[_SESSION] = guarded_session(
            hub.fetch_policy,
            connections=_FINDS_AT_ONCE,
            timeout=hub.settings.fetch_timeout,
            resolver=resolver,
        )
        yield
        await app[_SESSION].close()

    app.cleanup_ctx.append(session)
    app[_FINDS] = RateLimit(_FIND_RATE)
    app[_QUESTIONS] = RateLimit(_QUESTION_RATE)
    found = files()
    app.router.add_get("/", WatchPage(found.pop("watch.html")).answer)
    app.router.add_get("/hubs", get_hubs)
    for name, file in found.items():
        app.router.add_get(f"/pages/{name}", file.answer)
    app.router.add_get("/find", get_findings)
    app.router.add_get("/topics", get_topics)
    app.router.add_get("/topics/{id:[0-9]{1,18}}", get_topic)


async def get_hubs(request: web.Request) -> web.Response:
    """The hubs of this domain, this one first: a reader who loses one goes on at another."""
    hub = request.app[HUB]
    hubs = [hub.settings.public_url, *await hub.siblings.bases()]
    return json_text(json.dumps({"hubs": hubs}), allowed="*")


async def get_findings(request: web.Request) -> web.Response:
    """What a URL offers to watch. For the page, also one that came from a sibling and goes on
    here: other sites cannot ask, and nobody often."""
    hub = request.app[HUB]
    sibling = await _sibling(request)
    _limit(request, request.app[_FINDS])
    topic = _topic(request.query.get("url", ""))
    if not hub.settings.serves_host(topic.host):
        raise Refused(f"this hub does not serve topics of {topic.host}")
    answer = {"topic": topic.spelling, "canonical": topic.canonical}
    try:
        fetched = await fetch(
            request.app[_SESSION],
            hub.fetch_policy,
            topic.spelling.partition("#")[0],
            etag=None,
            last_modified=None,
            user_agent=f"{USER_AGENT} (+{hub.settings.hub_url})",
            max_body=hub.settings.max_body,
            max_redirects=hub.settings.max_redirects,
        )
    except FetchFailed as failure:
        # It can be watched all the same: content may be published here that is nowhere to fetch.
        return json_text(json.dumps({**answer, "error": str(failure)}), allowed=sibling)
    findings = await asyncio.to_thread(look, topic, fetched)
    return json_text(json.dumps({**answer, **asdict(findings)}), allowed=sibling)


async def get_topics(request: web.Request) -> web.Response:
    """All topics, or with `url` the one that it spells."""
    hub = request.app[HUB]
    _limit(request, request.app[_QUESTIONS])
    trusted = _trusted(hub, request)
    if "url" in request.query:
        topic = _topic(request.query["url"].strip())
        return await _topic_answer(request, await hub.store.topic(topic), topic, "", trusted)
    after = _number(request, "after", 0)
    limit = max(1, min(_number(request, "limit", _LISTED), _LISTED))
    records = await hub.store.topics(after=after, limit=limit + 1)
    show = diagnostics.revealing(trusted, None)
    shown = [each for each in records[:limit] if trusted or _is_public(each)]
    topics = [await diagnostics.overview(hub, each, show) for each in shown]
    following = records[limit - 1].id if len(records) > limit else None
    if _wants_json(request):
        return json_text(json.dumps({"topics": topics, "next": following}))
    return html(topics_page(topics, following))


async def get_topic(request: web.Request) -> web.Response:
    """One topic by its number."""
    hub = request.app[HUB]
    _limit(request, request.app[_QUESTIONS])
    trusted = _trusted(hub, request)
    if request.query.get("callbacks") == "full" and not trusted:
        text = "the admin token is needed: it is in the hub's data directory\n"
        headers = {"WWW-Authenticate": 'Basic realm="admin token of the hub", charset="UTF-8"'}
        return web.Response(status=401, text=text, headers=headers)
    record = await hub.store.topic_by_id(int(request.match_info["id"]))
    return await _topic_answer(request, record, None, "../", trusted)


async def _topic_answer(
    request: web.Request,
    record: TopicRecord | None,
    asked: Topic | None,
    root: str,
    trusted: bool,
) -> web.Response:
    if record is None or not (trusted or _is_public(record)):
        text = f"This hub knows no topic {asked.spelling if asked else request.match_info['id']}."
        if _wants_json(request):
            return json_text(json.dumps({"error": text}), status=404)
        return html(message_page("Unknown topic", text, root), status=404)
    values = await diagnostics.details(
        request.app[HUB],
        record,
        show=diagnostics.revealing(trusted, asked.canonical if asked else None),
        trusted=trusted,
        after=_number(request, "after", 0),
        limit=max(1, min(_number(request, "limit", _LISTED), _LISTED)),
    )
    if _wants_json(request):
        return json_text(json.dumps(values))
    return html(topic_page(values, root, trusted=trusted))


async def _sibling(request: web.Request) -> str | None:
    """The origin of a sibling's page that asks; None for our own. Refused for all others."""
    sender = request.headers.get("Origin")
    # Over plain HTTP browsers leave out the one, and to ask their own origin the other.
    site = request.headers.get("Sec-Fetch-Site", "none" if sender is None else "cross-site")
    if site in ("same-origin", "none"):
        return None
    if sender is None or sender not in await request.app[HUB].siblings.origins():
        raise Refused("this is for the hub's own page")
    return sender


def _is_public(topic: TopicRecord) -> bool:
    """Whether strangers may know that there is such a topic: not who talks with whom."""
    return is_web(identify(topic.canonical))


def _limit(request: web.Request, rate: RateLimit) -> None:
    hub = request.app[HUB]
    client = client_address(
        request.remote or "",
        request.headers.getall("X-Forwarded-For", ()),
        hub.settings.trusted_proxies,
    )
    if wait := rate.take(client_key(client), hub.context.clock()):
        hub.counters.add("requests_limited")
        raise web.HTTPTooManyRequests(
            text="you ask very often: wait a little\n", headers={"Retry-After": str(int(wait) + 1)}
        )


def _topic(spelling: str) -> Topic:
    try:
        topic = identify(spelling)
    except InvalidTopic as refusal:
        raise BadRequest(f"url: {refusal}") from None
    if not topic.canonical.startswith(("http:", "https:")):
        raise BadRequest("url must begin with http or https")
    return topic


def _trusted(hub: Hub, request: web.Request) -> bool:
    """Whether the admin token came along, as a bearer's or as the password of a browser."""
    token = hub.settings.admin_token
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return bool(token) and hmac.compare_digest(given.encode(errors="replace"), token.encode())


def _wants_json(request: web.Request) -> bool:
    if "format" in request.query:
        return request.query["format"] == "json"
    accept = request.headers.get("Accept", "")
    return "json" in accept and "text/html" not in accept


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return default
    if not re.fullmatch("[0-9]{1,18}", text):
        raise BadRequest(f"{name} must be a number")
    return int(text)
