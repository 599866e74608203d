"""`psph probe`: publish something in another domain, and time its crossing."""

from __future__ import annotations

import asyncio
import base64
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import click

from psph.errors import PsphError
from psph.output import print_json, print_table

if TYPE_CHECKING:
    import aiohttp

_DEFAULT_HUB = "http://127.0.0.1:8080"


@click.command(short_help="Publish a test in a domain and time its crossing.")
@click.argument("domain")
@click.option("--hub", default=_DEFAULT_HUB, show_default=True, help="URL of the PSPH that reads.")
@click.option("--dns", metavar="HOST:PORT", multiple=True, help="Name server to ask.")
@click.option("--count", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option("--timeout", type=click.FloatRange(0.1, 600), default=10.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def probe(
    domain: str, hub: str, dns: tuple[str, ...], count: int, timeout: float, as_json: bool
) -> None:
    """Ask the PSPH of DOMAIN to publish a test topic, and read it at the PSPH --hub.

    The PSPH of DOMAIN is found in DNS. Exit 1 when a test does not arrive in time.
    """
    rows = asyncio.run(_probe(domain, hub.rstrip("/"), dns, count, timeout))
    if as_json:
        milliseconds = [row["ms"] for row in rows]
        print_json({"domain": domain, "p50_ms": statistics.median(milliseconds), "crossings": rows})
        return
    print_table(
        f"crossings from {domain} to {hub}",
        ["position", "trace id", "ms"],
        [[row["position"], row["trace_id"], f"{row['ms']:.1f}"] for row in rows],
    )


async def _probe(
    domain: str, hub: str, dns: tuple[str, ...], count: int, patience: float
) -> list[dict[str, Any]]:
    import aiohttp

    from bootstrap import BootstrapError, Resolver
    from identifiers import InvalidTopic, normalise_host
    from psph.facades.probe import probe_topic

    try:
        domain = normalise_host(domain)
        async with Resolver(dns) as resolver:
            found = await resolver.find(domain)
            proxies = resolver.order(found.proxies)
    except (BootstrapError, InvalidTopic, ValueError) as error:
        raise PsphError(str(error)) from None
    addresses = [(each.addresses or (each.host,))[0] for each in proxies]
    if not addresses:
        raise PsphError(f"DNS names no PSPH for {domain}")
    host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    there = f"http://{host}:{proxies[0].port}/probe"
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(patience * (count + 1)):
            return await _cross(session, hub, probe_topic(domain), there, count, patience)
    except TimeoutError:
        raise PsphError(
            f"a test of {domain} did not arrive at {hub} within {patience:g} s"
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise PsphError(f"the probe failed: {error}") from None


async def _cross(
    session: aiohttp.ClientSession, hub: str, topic: str, there: str, count: int, patience: float
) -> list[dict[str, Any]]:
    rows = []
    async with session.get(f"{hub}/stream", params={"topic": topic}) as stream:
        if stream.status != 200:
            raise PsphError(f"{hub} does not stream {topic}: {(await stream.text()).strip()}")
        events = _events(stream)
        # The first one opens the way, so it is not counted.
        await _one(session, there, events, patience)
        for _ in range(count):
            rows.append(await _one(session, there, events, patience))
    return rows


async def _one(
    session: aiohttp.ClientSession, there: str, events: Any, patience: float
) -> dict[str, Any]:
    begun = time.perf_counter()
    async with session.post(there) as answer:
        if answer.status != 200:
            raise PsphError(f"{there} answered {answer.status}: {(await answer.text()).strip()}")
        said = await answer.json()
    async with asyncio.timeout(patience):
        async for word in events:
            if word == said["word"]:
                break
        else:
            raise PsphError("the stream ended before the test arrived")
    return {
        "position": said["position"],
        "trace_id": said["trace_id"],
        "ms": (time.perf_counter() - begun) * 1e3,
    }


async def _events(stream: aiohttp.ClientResponse) -> Any:
    """The contents of the events of a stream."""
    async for line in stream.content:
        if line.startswith(b"data: "):
            data = json.loads(line[6:])
            if "body_b64" in data:
                yield base64.b64decode(data["body_b64"]).decode()
