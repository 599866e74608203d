"""`psph roam`: follow topics while moving between hubs; nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from identifiers import InvalidTopic, identify
from mobility import OutgoingFull
from psph.commands import following
from psph.commands.remote import read_token
from psph.errors import PsphError

if TYPE_CHECKING:
    from mobility import ClientSettings, Gap, MovedIn, MovedOut, Reset, Superseded, Update
    from psph.mobility.moving import Mover
    from psph.mobility.roamer import Roamer

_LONGEST_LINE = 1 << 20


@click.command(short_help="Follow topics while moving between hubs.")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--hub", "hubs", metavar="URL", multiple=True, required=True, help="Hubs to be at.")
@click.option(
    "--every",
    metavar="S",
    type=click.FloatRange(min=0.1),
    help="Move to the next hub every S seconds.",
)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="Stop after N updates.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after S seconds; a failure when --count was not reached.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the client's secret and Positions here, and go on from them.",
)
@click.option(
    "--monitor",
    is_flag=True,
    help="Watch the host's network and the hubs, and move when either says so.",
)
@click.option(
    "--keep",
    metavar="S",
    type=click.FloatRange(min=1, max=30 * 86_400),
    default=3_600.0,
    show_default=True,
    help="How long hubs shall keep what comes while the client is away.",
)
@click.option(
    "--quota",
    metavar="N",
    type=click.IntRange(min=1, max=1_000_000),
    default=1_000,
    show_default=True,
    help="How many messages of a topic they shall keep.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The token that lets the client publish at a topic's own hub.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, moves included.")
def roam(
    topics: tuple[str, ...],
    hubs: tuple[str, ...],
    every: float | None,
    count: int | None,
    timeout: float | None,
    state: Path | None,
    monitor: bool,
    keep: float,
    quota: int,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Follow TOPICs at one hub after the other, and print each update once, in order.

    The client moves when its hub dies, with --every in turn, and with --monitor when the host's
    network changes or another hub answers clearly faster. Lines on standard input move it as
    well: `move`, `move URL`, `out` and `quit`. What reads the output knows nothing of all that.

    A line `publish TOPIC TEXT` publishes once, in order, from wherever the client is next.

    A TOPIC is a URL, or a native topic of the fabric: psirp:SID/RID, 64 hexadecimal digits each.
    """
    if len(set(map(_canonical, topics))) < len(topics):
        raise click.UsageError("TOPIC: the same one is named twice")
    for hub in hubs:
        following.web_url(hub, "--hub")
    if state is not None and not state.parent.is_dir():
        raise click.UsageError(f"--state: there is no directory {state.parent}")
    from mobility import ClientSettings, Quota, Service

    settings = ClientSettings(service=Service(keep=keep, topic=Quota(messages=quota)))
    screen = Screen(as_json, count)
    token = "" if token_file is None else read_token(token_file)
    following.run(_roam(topics, hubs, every, timeout, state, monitor, settings, token, screen))
    if count is not None and screen.updates < count:
        raise PsphError(f"{screen.updates} of {count} updates came within {timeout:g} s")


def _canonical(topic: str) -> str:
    """One spelling for each topic; a usage error for what is none."""
    from psph.mobility.native_topics import NATIVE, native_ids

    if not topic.startswith(NATIVE):
        return identify(following.web_url(topic, "TOPIC")).canonical
    if native_ids(topic) is None:
        known = "write psirp:SID/RID, 64 hexadecimal digits in lower case each"
        raise click.UsageError(f"TOPIC: {topic[:100]!r} is no native topic: {known}")
    return topic


async def _roam(
    topics: tuple[str, ...],
    hubs: tuple[str, ...],
    every: float | None,
    seconds: float | None,
    state: Path | None,
    monitor: bool,
    settings: ClientSettings,
    token: str,
    screen: Screen,
) -> None:
    from psirp_sim.runtime.sqlite_storage import StorageError
    from psph.mobility.moving import Mover
    from psph.mobility.roamer import Roamer

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, screen.done.set)
    movers: list[Mover] = []

    def lost(reason: str) -> None:
        movers[0].lost(reason)

    try:
        async with Roamer(
            topics, consume=screen.consume, notice=screen.notice, lost=lost, state=state,
            settings=settings, token=token,
        ) as roamer:  # fmt: skip
            mover = Mover(
                roamer, hubs, every=every, monitor=1.0 if monitor else None, told=screen.tell
            )
            movers.append(mover)
            tasks = [asyncio.create_task(mover.run()), asyncio.create_task(screen.done.wait())]
            try:
                with Commands(mover, roamer, screen):
                    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done():
                    tasks[0].result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await roamer.move_out()
    except StorageError as error:
        raise PsphError(str(error)) from None


class Commands:
    """Lines on standard input, where it can be waited for."""

    def __init__(self, mover: Mover, roamer: Roamer, screen: Screen) -> None:
        self._mover, self._roamer, self._screen = mover, roamer, screen
        self._rest = b""

    def __enter__(self) -> None:
        with contextlib.suppress(OSError, ValueError, NotImplementedError):  # a file, or nothing
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        chunk = os.read(sys.stdin.fileno(), 65_536)
        if not chunk:
            self.__exit__()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._command(line.decode(errors="replace").strip())
        self._rest = self._rest[:_LONGEST_LINE]

    def _command(self, line: str) -> None:
        command, _, more = line.partition(" ")
        if command == "move":
            self._mover.move(more or None)
        elif command == "out":
            self._mover.leave()
        elif command == "publish":
            topic, _, text = more.partition(" ")
            try:
                identify(topic)
                self._roamer.publish(topic, text.encode(), "text/plain")
            except (InvalidTopic, OutgoingFull) as error:
                self._screen.tell(f"publish: {error}")
        elif command == "quit":
            self._screen.done.set()
        elif command:
            known = "move, move URL, out, publish TOPIC TEXT or quit"
            self._screen.tell(f"{command[:40]!r} is no command: write {known}")


class Screen:
    """Prints what comes."""

    def __init__(self, as_json: bool, count: int | None) -> None:
        self._json = as_json
        self._count = count
        self.updates = 0
        self.done = asyncio.Event()

    def consume(self, event: Update | Gap | Reset) -> None:
        from mobility import Gap, Update
        from psph.mobility.roaming_host import Enough

        if self.done.is_set():
            raise Enough
        if isinstance(event, Update):
            self._update(event)
        elif isinstance(event, Gap):
            said = {
                "event": "gap", "topic": event.topic, "publisher": str(event.publisher),
                "epoch": event.epoch, "first": event.first, "last": event.last,
                "reason": event.reason,
            }  # fmt: skip
            self._say(said, f"gap: {event.missed} messages are missing ({event.reason})")
        else:
            said = {"event": "reset", "topic": event.topic, "previous": str(event.previous)}
            self._say(said, f"reset: {event.topic} is numbered anew")

    def _update(self, event: Update) -> None:
        self.updates += 1
        text = event.message.body.decode(errors="replace")
        if self._json:
            said = {
                "event": "update", "topic": event.topic, "position": str(event.position),
                "kind": event.message.kind, "body": text,
            }  # fmt: skip
            click.echo(json.dumps(said, ensure_ascii=False))
        else:
            shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
            click.echo(f"{event.topic}  {event.position}  {shown[:200]}")
        if self.updates == self._count:
            self.done.set()

    def notice(self, notice: MovedIn | MovedOut | Superseded) -> None:
        from mobility import MovedIn, MovedOut

        if isinstance(notice, MovedIn):
            said: dict[str, object] = {
                "event": "moved_in", "proxy": notice.proxy, "collected": notice.collected,
                "missing": notice.missing,
            }  # fmt: skip
            words = f"live at {notice.proxy}"
        elif isinstance(notice, MovedOut):
            said, words = {"event": "moved_out", "proxy": notice.proxy}, f"left {notice.proxy}"
        else:
            said = {"event": "superseded", "epoch": notice.epoch}
            words = "another client with the same secret moved in later: this one stops"
            self.done.set()
        self._say(said, words)

    def tell(self, words: str) -> None:
        self._say({"event": "told", "words": words}, words)

    def _say(self, said: dict[str, object], words: str) -> None:
        if self._json:
            click.echo(json.dumps(said, ensure_ascii=False))
        else:
            click.echo(words, err=True)
