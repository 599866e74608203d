"""`psph up` from its beginning to its end."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click
from aiohttp import web
from rich.console import Console
from rich.live import Live
from rich.text import Text

from demo import conversations
from demo.guarding import is_loopback
from demo.ports import HOST
from demo.serving import Api
from demo.showing import Showing
from demo.world import World, WorldSettings
from psph.errors import PsphError
from psph.output import progress
from push_hub.logs import TextLines

_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The command line."""

    host: str
    port: int
    duration: float | None
    processes: bool
    data: Path


async def run(settings: RunSettings) -> None:
    """Until Ctrl-C, SIGTERM, the end of the terminal or of the duration."""
    stopped = asyncio.Event()
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Who closes the terminal stops it, unless they said that it goes on (nohup).
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with _listen(settings) as listening:
        running = asyncio.create_task(_serve(settings, listening))
        stopping = asyncio.create_task(stopped.wait())
        # Who is stopped while it starts does not wait until it has started.
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not running.done():
            running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _serve(settings: RunSettings, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    loopback = is_loopback(settings.host)
    token = None if loopback else secrets.token_urlsafe(_TOKEN_BYTES)
    shown = _bracketed(_reachable(settings.host))
    async with AsyncExitStack() as stack:
        world_settings = WorldSettings(
            settings.data,
            HOST if loopback else shown,
            None if loopback else shown,
            settings.processes,
        )
        with progress() as bar:
            world = World(
                world_settings, lambda done: bar.update(task, advance=1, description=done)
            )
            task = bar.add_task("starting", total=world.steps)
            _log_to(settings.data)
            await stack.enter_async_context(world)
            await conversations.greet(world)
        showing = Showing(world)
        runner = web.AppRunner(
            Api(world, showing).application(token), access_log=None, shutdown_timeout=1
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listening).start()
        query = "" if token is None else f"?token={token}"
        click.echo(f"ready http://{shown}:{port}/{query}")
        await _show_status(showing, settings.duration)


async def _show_status(showing: Showing, duration: float | None) -> None:
    """One line that stays where it is, until the time is up; none where nobody looks."""
    console = Console(stderr=True)
    end = None if duration is None else time.monotonic() + duration
    with ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
        while end is None or time.monotonic() < end:
            if live is not None:
                live.update(status_line(showing.status()), refresh=True)
            left = 1.0 if end is None else end - time.monotonic()
            await asyncio.sleep(max(0.0, min(1.0, left)))


def status_line(status: Mapping[str, Any]) -> Text:
    """What the world does, for people."""
    took = status["p50_ms"]
    parts = [
        f"up {timedelta(seconds=status['uptime_s'])}",
        f"{status['nodes_up']} of {status['nodes']} nodes",
        f"{status['crossings']} crossings"
        + ("" if took is None else f", half within {took:.0f} ms"),
        f"{status['pages']} page{'' if status['pages'] == 1 else 's'} open",
        "Ctrl-C stops",
    ]
    return Text(" · ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")


def _listen(settings: RunSettings) -> socket.socket:
    """Before anything is started: a port that is taken is said at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.getaddrinfo(settings.host, settings.port, family)
        return socket.create_server((settings.host, settings.port), family=family)
    except PermissionError:
        raise PsphError(
            f"port {settings.port} needs rights that you do not have: choose one above 1023"
            " with --port"
        ) from None
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise PsphError(
                f"{settings.host} is no address of this machine: choose another with --host"
            ) from None
        raise PsphError(
            f"{settings.host}:{settings.port} cannot be used ({_plain(error)}): choose another"
            " with --port, or --port 0 for any"
        ) from None


def _plain(error: OSError) -> str:
    """Without where in Python it happened."""
    return (error.strerror or str(error)).partition(" (while")[0]


def _log_to(directory: Path) -> None:
    """What the parts say goes to a file: the terminal is for people."""
    handler = logging.FileHandler(directory / "logs" / "up.log")
    handler.setFormatter(TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _reachable(host: str) -> str:
    """The address that browsers use: "everywhere" is none."""
    try:
        if not ip_address(host).is_unspecified:
            return host
    except ValueError:
        return host
    probe = ("2001:db8::1" if ":" in host else "192.0.2.1", 9)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(probe)  # nothing is sent: only the way is looked up
            return str(s.getsockname()[0])
        except OSError:
            return "::1" if ":" in host else "127.0.0.1"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
