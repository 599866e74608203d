"""`psph chat`: talk with somebody of another domain, in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from psph.commands import following
from psph.errors import PsphError

if TYPE_CHECKING:
    from bootstrap import Server
    from psph.chat.client import ChatClient
    from psph.chat.events import ChatEvent

TOKEN = "PSPH_CHAT_TOKEN"
_ECHO = 5.0
"""Seconds to wait at the end for what was said to be shown."""
_LONGEST_LINE = 64 << 10


@click.command(short_help="Talk with somebody of another domain.")
@click.argument("me")
@click.option("--with", "buddy", metavar="JID", required=True, help="Whom to talk with.")
@click.option(
    "--hub", "hubs", metavar="URL", multiple=True, help="A PSPH of ME's domain; may repeat."
)
@click.option("--dns", metavar="HOST:PORT", help="Find the PSPHs at this name server.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Has the token of ME; so may the environment, as {TOKEN}.",
)
@click.option(
    "--history", metavar="N", type=click.IntRange(0, 1_000), default=50, show_default=True,
    help="Messages of each side to begin with.",
)  # fmt: skip
@click.option(
    "--stay", metavar="S", type=click.FloatRange(min=0), default=0.0,
    help="Seconds to go on after the end of the input.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def chat(
    me: str,
    buddy: str,
    hubs: tuple[str, ...],
    dns: str | None,
    token_file: Path | None,
    history: int,
    stay: float,
    as_json: bool,
) -> None:
    """Talk as ME, such as alice@site-a.test, at a PSPH of that domain; Ctrl-C or Ctrl-D leaves.

    The PSPHs are those given with --hub, or found by the SRV records of the domain. When one dies
    the next is used, or the same when it is back: nothing is lost or said twice. Without a token
    the PSPH is asked for one, which it gives to whom its configuration trusts.

    When the input is no terminal each of its lines is sent, and each message printed as a line.
    """
    from bootstrap import BootstrapError, Server
    from psph.chat.message import BadMessage, normal_jid

    for url in hubs:
        following.web_url(url, "--hub")
    try:
        user = normal_jid(me)
        normal_jid(buddy)
    except BadMessage as error:
        raise click.UsageError(str(error)) from None
    try:
        servers = [Server.parse(dns)] if dns is not None else []
    except BootstrapError as error:
        raise click.UsageError(f"--dns: {error}") from None
    token = _token(token_file)
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not as_json

    async def talk() -> None:
        from psph.chat.client import ChatClient, ChatFailed

        shown: list[Callable[[ChatEvent], None]] = []
        async with _hubs(hubs, servers, user) as found:
            try:
                client = ChatClient(
                    me, [buddy], found, lambda event: shown[0](event), token=token, history=history
                )
            except BadMessage as error:
                raise click.UsageError(str(error)) from None
            try:
                if in_terminal:
                    from psph.commands.chat_screen import Screen

                    screen = Screen(client)
                    shown.append(screen.show)
                    await _beside(client, screen.run())
                else:
                    shown.append(_show_json if as_json else _show_plain)
                    await _beside(client, _lines(client, stay))
            except ChatFailed as error:
                raise PsphError(str(error)) from None

    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(talk())


def _token(path: Path | None) -> str:
    try:
        text = os.environ.get(TOKEN, "") if path is None else path.read_text()
    except (OSError, UnicodeError) as error:
        raise PsphError(f"{path} has no token: {error}") from None
    token = text.strip()
    if not token.isascii() or any(each.isspace() for each in token):
        raise PsphError(f"{path or TOKEN} has no token: psph chat-token prints one")
    return token


@contextlib.asynccontextmanager
async def _hubs(given: tuple[str, ...], servers: list[Server], user: str) -> AsyncIterator[Any]:
    from bootstrap import Resolver
    from psph.chat.hubs import FoundHubs, GivenHubs

    if given:
        yield GivenHubs(given)
        return
    async with Resolver(servers) as resolver:
        yield FoundHubs(resolver, user)


async def _beside(client: ChatClient, work: Coroutine[Any, Any, None]) -> None:
    """Do the work while the client runs, until either ends; or a signal ends both."""
    tasks = [asyncio.create_task(client.run()), asyncio.create_task(work)]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tasks[1].cancel)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# When there is no terminal


async def _lines(client: ChatClient, stay: float) -> None:
    """Send what comes in; at its end wait until all of it is acknowledged."""
    from psph.chat.events import NotSent
    from psph.chat.message import BadMessage

    async for line in _input():
        text = line.decode(errors="replace").strip()
        if not text:
            continue
        await client.room()
        try:
            client.say(text)
        except BadMessage as error:
            client.tell(NotSent(text, str(error)))
    await client.acknowledged()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ECHO):
            await client.echoed()
    await asyncio.sleep(stay)


async def _input() -> AsyncIterator[bytes]:
    """The lines of the input; one that is too long comes in parts."""
    incoming: asyncio.Queue[bytes] = asyncio.Queue(4)
    loop = asyncio.get_running_loop()

    def read() -> None:
        # In a thread, because the loop cannot wait for files; without the buffer of sys.stdin,
        # because the end of the program must not wait for a line.
        with contextlib.suppress(RuntimeError):
            while True:
                try:
                    part = os.read(0, _LONGEST_LINE)
                except OSError:
                    part = b""
                asyncio.run_coroutine_threadsafe(incoming.put(part), loop).result()
                if not part:
                    return

    threading.Thread(target=read, daemon=True).start()
    rest = b""
    while part := await incoming.get():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
        if len(rest) >= _LONGEST_LINE:
            yield rest
            rest = b""
    yield rest


def _show_plain(event: ChatEvent) -> None:
    from psph.chat.showing import plain

    line, said = plain(event)
    click.echo(line, err=not said)
    (sys.stdout if said else sys.stderr).flush()


def _show_json(event: ChatEvent) -> None:
    from psph.chat.events import as_json

    click.echo(json.dumps(as_json(event)))
    sys.stdout.flush()
