"""Texts of strangers as a terminal may show them, and events as lines."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from psph.chat.events import ChatEvent, Connected, Disconnected, Missed, NotSent, Present, Said

_JOINERS: Final = "\u200c\u200d"
"""Not printable by themselves, and part of many words and signs."""
_SHORT: Final = {"\n": "\\n", "\t": "\\t", "\\": "\\\\"}


def one_line(text: str) -> str:
    """The text with everything escaped that could be more than a text in a line: nobody sends
    escape sequences to a terminal, or lines that look like somebody else's."""
    return "".join(_SHORT.get(each) or _plain(each) for each in text)


def short_name(jid: str, all_jids: Iterable[str]) -> str:
    """Without its domain, where nobody else of them would have the same name then."""
    local = jid.partition("@")[0]
    alike = [each for each in all_jids if each.partition("@")[0] == local]
    return one_line(jid if len(alike) > 1 else local)


def lines(text: str) -> list[str]:
    """The text in its lines, each fit for a terminal."""
    return ["".join(map(_plain, line.replace("\t", "    "))) for line in text.split("\n")]


def _plain(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f\x85\u2028\u2029\x0b\x0c\r\n":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def plain(event: ChatEvent) -> tuple[str, bool]:
    """An event in one line, and whether it is what was said (the rest is about how it goes)."""
    match event:
        case Said():
            return f"{one_line(event.sender)}: {one_line(event.text)}", True
        case Present(jid, state, _):
            return f"{one_line(jid)} is {state}", False
        case Missed():
            return missed(event), False
        case Connected(hub, again):
            return f"{'again ' if again else ''}connected to {hub}", False
        case Disconnected(hub, reason):
            where = f" to {hub}" if hub else ""
            return f"no connection{where} ({one_line(reason)}); trying again", False
        case NotSent(text, reason):
            return f"not sent: {one_line(text)[:60]} ({one_line(reason)})", False


def missed(event: Missed) -> str:
    """In words."""
    if event.kind == "gap":
        return f"messages of {one_line(event.sender)} are missing: they are not kept for so long"
    return f"the messages of {one_line(event.sender)} were counted anew: some may be missing"


def time_of(text: str) -> str:
    """When something was said, by the clock of this machine; empty when that is no time."""
    try:
        when = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        return ""
    today = datetime.now().astimezone().date()
    return f"{when:%H:%M:%S}" if when.date() == today else f"{when:%d %b %H:%M}"
