"""How `psph subscribe` follows by stream: at several hubs in turn, or at the PSPHs of a domain."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from identifiers import InvalidHost, InvalidPosition, Position, identify, normalise_host
from psph.errors import PsphError

if TYPE_CHECKING:
    from push_hub import Notification
    from push_hub.client import StreamFollower, StreamGap, StreamReset, StreamUpdate
    from push_hub.client.callback import Memory

_PATIENCE = 30.0
"""Seconds for the first hub to be found; after that it is tried for ever."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which hubs to follow at: those given, in their order, or those of a domain's PSPHs."""

    hubs: tuple[str, ...] = ()
    domain: str | None = None
    dns: str | None = None
    after: tuple[Position, ...] = ()


def read_options(
    hubs: Sequence[str], domain: str | None, dns: str | None, after: Sequence[str]
) -> Where | None:
    """None: not by stream, but by a callback. A usage error says what does not fit."""
    if domain is not None and hubs:
        raise click.UsageError("--domain finds the hubs: leave out --hub")
    if dns is not None and domain is None:
        raise click.UsageError("--dns is for --domain: name that, too")
    if domain is None and len(hubs) < 2:
        if after:
            raise click.UsageError("--after is for streams: give --domain, or --hub several times")
        return None
    try:
        positions = tuple(Position.parse(text) for text in after)
        home = None if domain is None else normalise_host(domain)
    except (InvalidPosition, InvalidHost) as error:
        raise click.UsageError(str(error)) from None
    return Where(tuple(hubs), home, dns, positions)


async def follow(
    topic: str,
    where: Where,
    show: Callable[[Notification], None],
    count: int | None,
    seconds: float | None,
    as_json: bool,
) -> int:
    """How many updates came within so many seconds."""
    from push_hub.client import StreamGap, StreamReset, StreamUpdate
    from push_hub.client.callback import Memory

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    memory, seen = Memory(), 0
    try:
        async with asyncio.timeout(seconds), _follower(topic, where, seconds) as follower:
            async for event in follower:
                if isinstance(event, StreamGap | StreamReset):
                    _show_notice(event, as_json)
                if not isinstance(event, StreamUpdate):
                    continue
                show(await _notification(memory, event))
                seen += 1
                if seen == count:
                    break
    except TimeoutError:
        pass
    return seen


@asynccontextmanager
async def _follower(
    topic: str, where: Where, seconds: float | None
) -> AsyncIterator[StreamFollower]:
    from aiohttp.abc import AbstractResolver

    from bootstrap import BootstrapError, Resolver, Server
    from bootstrap.http_resolver import ZoneResolver
    from identifiers import zone_of_host
    from psph.guide import DomainHubs
    from push_hub.client import StreamFollower

    def told(words: str) -> None:
        click.echo(words, err=True)

    patience = min(_PATIENCE, seconds or _PATIENCE)
    after = {topic: where.after}
    if where.domain is None:

        async def given() -> Sequence[str]:
            return where.hubs

        async with StreamFollower([topic], given, after=after, told=told, patience=patience) as it:
            yield it
        return
    try:
        servers = () if where.dns is None else (Server.parse(where.dns),)
    except BootstrapError as error:
        raise click.UsageError(f"--dns: {error}") from None
    async with AsyncExitStack() as stack:
        resolver = await stack.enter_async_context(Resolver(servers))
        hubs = DomainHubs(resolver, where.domain, identify(topic))
        names: AbstractResolver | None = None
        if servers:
            # Only that name server may know where the PSPHs are.
            names = ZoneResolver([zone_of_host(where.domain)], servers)
            stack.push_async_callback(names.close)
        try:
            await hubs()
        except BootstrapError as error:
            raise PsphError(str(error)) from None
        yield await stack.enter_async_context(
            StreamFollower(
                [topic], hubs, after=after, told=told, patience=patience, resolver=names,
                failed=hubs.failed, worked=hubs.worked,
            )
        )  # fmt: skip


async def _notification(memory: Memory, update: StreamUpdate) -> Notification:
    """As one that comes to a callback: with the entries that are new since the one before."""
    from push_hub.feeds import read_feed

    feed = await asyncio.to_thread(read_feed, update.content_type, update.content)
    made = memory.notification(update.topic, update.content_type, update.content, feed)
    return replace(made, known_position=update.position)


def _show_notice(notice: StreamGap | StreamReset, as_json: bool) -> None:
    from push_hub.client import StreamGap

    kind = "gap" if isinstance(notice, StreamGap) else "reset"
    if as_json:
        said = {
            "topic": notice.topic, "event": kind, "after": str(notice.after),
            "resumes": str(notice.resumes),
        }  # fmt: skip
        click.echo(json.dumps(said, ensure_ascii=False))
    elif kind == "gap":
        click.echo(
            f"gap: versions between {notice.after} and {notice.resumes} cannot be had any more",
            err=True,
        )
    else:
        click.echo(f"reset: {notice.resumes} comes after {notice.after}, numbered anew", err=True)
