"""What `psph subscribe`, `publish` and `check` share, and how they show an update."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.text import Text

from identifiers import InvalidTopic, identify
from psph.errors import PsphError

if TYPE_CHECKING:
    from push_hub import Notification
    from push_hub.feeds import Entry

SHOWN_TEXT: Final = 300
SHOWN_LINES: Final = 20

Result = TypeVar("Result")


def web_url(text: str, what: str) -> str:
    """An http or https URL as it was spelled, or a usage error that says what is wrong."""
    try:
        canonical = identify(text).canonical
    except InvalidTopic as error:
        raise click.UsageError(f"{what}: {error}") from None
    if not canonical.startswith(("http:", "https:")):
        raise click.UsageError(f"{what} must be an http or https URL")
    return text


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end; what a hub or topic did wrong becomes one line."""
    from push_hub.errors import HubError

    try:
        return asyncio.run(main)
    except HubError as error:
        raise PsphError(str(error)) from error
    except asyncio.CancelledError:
        raise click.Abort from None


def address_towards(url: str) -> str:
    """The address of this machine that a host would answer to; nothing is sent."""
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(
            parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM, proto=socket.IPPROTO_UDP
        )
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    except OSError:
        pass
    return "127.0.0.1"


def as_json(update: Notification) -> dict[str, object]:
    """For programs: one line each. Texts are the publisher's own, links and all."""
    from push_hub.feeds import read_feed

    shown: dict[str, object] = {
        "topic": update.topic,
        "delivery_id": update.delivery_id,
        "position": str(update.position) if update.position else None,
        "content_type": update.content_type,
        "current": update.current,
    }
    if read_feed(update.content_type, update.content) is not None:
        return shown | {"entries": [_entry(each) for each in update.new_entries]}
    return shown | {"body_b64": base64.b64encode(update.content).decode()}


def _entry(entry: Entry) -> dict[str, str]:
    return {
        "id": entry.key,
        "title": entry.title,
        "link": entry.link,
        "published": entry.published,
        "author": entry.author,
        "content": entry.content,
    }


def show(console: Console, update: Notification, now: datetime) -> None:
    """For people. Nothing of a stranger's text reaches the terminal as a control sequence."""
    when = "now" if update.current else f"{now:%H:%M:%S}"
    if update.entries:
        count = len(update.new_entries)
        title = f"{count} new of {len(update.entries)} entries"
    else:
        title = f"{update.content_type}, {len(update.content)} bytes"
    console.print(Text.assemble((when, "bold cyan"), "  ", (update.topic, "bold"), f"  {title}"))
    if update.entries:
        for entry in update.new_entries:
            _show_entry(console, entry)
    elif update.content_type.startswith("text/"):
        _show_text(console, update.content)


def _show_entry(console: Console, entry: Entry) -> None:
    from push_hub.feeds.sanitising import plain_text, safe_url

    console.print(Text.assemble("  ", (plain_text(entry.title) or "(no title)", "bold green")))
    about = "  ".join(
        part for part in (plain_text(entry.published), plain_text(entry.author)) if part
    )
    for line, style in ((safe_url(entry.link), "blue"), (about, "dim")):
        if line:
            console.print(Text.assemble("    ", (line, style)), soft_wrap=True)
    text = plain_text(entry.content)
    if text:
        cut = text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT].rsplit(" ", 1)[0] + " ..."
        console.print(Text(f"    {cut}"))


def _show_text(console: Console, content: bytes) -> None:
    lines = content[:20_000].decode(errors="replace").splitlines()
    for line in lines[:SHOWN_LINES]:
        readable = "".join(c if c.isprintable() else " " for c in line)
        console.print(Text(f"  {readable}"), soft_wrap=True)
    if len(lines) > SHOWN_LINES:
        console.print(Text(f"  ... and {len(lines) - SHOWN_LINES} lines more", style="dim"))
