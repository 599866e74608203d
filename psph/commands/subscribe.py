"""`psph subscribe`: follow a topic in the terminal."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click
from rich.console import Console

from psph.commands import following, stream_following
from psph.configuration.addresses import parse_address
from psph.errors import PsphError

if TYPE_CHECKING:
    from push_hub import Notification, Subscriber


@click.command(short_help="Follow a topic and print its updates.")
@click.argument("topic")
@click.option(
    "--hub",
    "hubs",
    metavar="URL",
    multiple=True,
    help="Hub to subscribe at; discovered when not given. Several: by stream, in this order.",
)
@click.option("--domain", metavar="DOMAIN", help="Follow by stream at the PSPHs of this domain.")
@click.option("--dns", metavar="HOST:PORT", help="Ask this name server for --domain.")
@click.option(
    "--after",
    metavar="POSITION",
    multiple=True,
    help="By stream: go on after this version; once for each publisher.",
)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="Stop after N updates.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after S seconds; a failure when --count was not reached.",
)
@click.option("--current", is_flag=True, help="Begin with what the topic holds now.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Where to listen for the hub; found if left out."
)
@click.option("--public-url", metavar="URL", help="Where the hub reaches --listen, if elsewhere.")
@click.option("--lease", metavar="S", type=click.IntRange(min=1), help="Lease to ask for.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def subscribe(
    topic: str,
    hubs: tuple[str, ...],
    domain: str | None,
    dns: str | None,
    after: tuple[str, ...],
    count: int | None,
    timeout: float | None,
    current: bool,
    listen: str | None,
    public_url: str | None,
    lease: int | None,
    as_json: bool,
) -> None:
    """Subscribe to TOPIC and print its updates until Ctrl-C; then unsubscribe.

    The hub and the topic's own name (rel=self) are discovered unless --hub is given. The hub has
    to reach this machine: give --listen and --public-url where a NAT or proxy is in between.
    Signatures are verified, repeats left out, the lease is renewed.

    With --domain, or several --hub, TOPIC is followed by stream instead, which needs no way back to
    this machine. It begins with what the topic holds, or after the Positions given by --after; when
    a hub dies it goes on at the next, and no version is missed or shown twice.
    """
    following.web_url(topic, "TOPIC")
    for each in hubs:
        following.web_url(each, "--hub")
    where = stream_following.read_options(hubs, domain, dns, after)
    if where is not None and (listen or public_url or lease):
        raise click.UsageError(
            "--listen, --public-url and --lease are for a callback, not a stream"
        )
    hub = hubs[0] if hubs else None
    if public_url is not None:
        following.web_url(public_url, "--public-url")
    try:
        address = parse_address(listen) if listen is not None else None
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}") from None
    console = Console(highlight=False, soft_wrap=False)

    def show(update: Notification) -> None:
        if as_json:
            click.echo(json.dumps(following.as_json(update), ensure_ascii=False))
        else:
            following.show(console, update, datetime.now())

    async def follow() -> int:
        if where is not None:
            return await stream_following.follow(topic, where, show, count, timeout, as_json)
        begun = time.monotonic()
        at, found = (topic, (hub,)) if hub is not None else await _discover(topic)
        host, port = address or (following.address_towards(found[0]), 0)
        left = None if timeout is None else max(0.1, timeout - (time.monotonic() - begun))
        from push_hub import Subscriber

        try:
            subscriber = Subscriber(
                at, hub=found, host=host, port=port, public_url=public_url,
                lease_seconds=lease, current=current, patience=min(30.0, left or 30.0),
            )  # fmt: skip
        except ValueError as error:
            raise click.UsageError(f"{error}".replace("public_url", "--public-url")) from None
        return await _follow(subscriber, show, count, left)

    seen = following.run(follow())
    if count is not None and seen < count:
        raise PsphError(f"{seen} of {count} updates came within {timeout:g} s")


async def _discover(topic: str) -> tuple[str, tuple[str, ...]]:
    from push_hub.client.finding import ANYWHERE, client_session, find_hubs

    async with client_session(ANYWHERE, 20.0) as session:
        found = await find_hubs(session, ANYWHERE, topic)
    return found.topic, found.links.hubs


async def _follow(
    subscriber: Subscriber,
    show: Callable[[Notification], None],
    count: int | None,
    seconds: float | None,
) -> int:
    """How many updates came within so many seconds."""
    deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
    task = asyncio.current_task()
    assert task is not None
    # Ended by a service manager: unsubscribe as with Ctrl-C.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    seen = 0
    async with subscriber:
        hours = subscriber.lease_seconds / 3600
        click.echo(
            f"subscribed to {subscriber.topic} at {subscriber.hub} "
            f"(lease of {hours:.3g} h, renewed in time)",
            err=True,
        )
        try:
            async with asyncio.timeout_at(deadline):
                async for update in subscriber:
                    show(update)
                    seen += 1
                    if seen == count:
                        break
        except TimeoutError:
            pass
    return seen
