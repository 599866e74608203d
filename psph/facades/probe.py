"""A topic of every PSPH that says something whenever it is asked to: for measuring a crossing."""

from __future__ import annotations

import secrets
import time

from aiohttp import web

from identifiers import identify
from push_hub.keys import HUB
from push_hub.limits import RateLimit
from push_hub.settings import Rate

PATH = "/.well-known/psph-probe"
_RATE = Rate(per_second=5.0, burst=20)


def probe_topic(domain: str) -> str:
    """The topic that the PSPH of a domain publishes on demand."""
    return f"http://{domain}{PATH}"


def add_probe(app: web.Application, domain: str) -> None:
    """`POST /probe` publishes one version, and answers what is in it."""
    topic, limit = identify(probe_topic(domain)), RateLimit(_RATE)

    async def probe(request: web.Request) -> web.Response:
        wait = limit.take("", time.monotonic())
        if wait:
            return web.Response(
                status=429, text="too many probes\n", headers={"Retry-After": str(int(wait) + 1)}
            )
        word = secrets.token_hex(8)
        recorded = await request.app[HUB].publish(topic, "text/plain", word.encode())
        assert recorded is not None  # only what brings a position can be known
        update = recorded.update
        return web.json_response(
            {"topic": topic.canonical, "word": word, "position": str(update.position),
             "trace_id": update.trace_id}
        )  # fmt: skip

    app.router.add_post("/probe", probe)
