"""A chat message as it travels: the RSS document of the dissertation's figure 38.

It has no items, no id and no date: who, and what, stand directly under the channel. Which message
is which is said by its Position, so two that are alike are two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from identifiers import InvalidJid, InvalidTopic, jid_topic, percent

CONTENT_TYPE: Final = "application/rss+xml"
LONGEST: Final = 8_192
"""Characters of a text."""
LARGEST: Final = 128 << 10
"""Bytes of a document that is read."""
TITLE: Final = "New message from:"

_DC: Final = "http://purl.org/dc/elements/1.1/"
ElementTree.register_namespace("dc", _DC)
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML document may contain, escaped or not."""


class BadMessage(ValueError):
    """Not a message, in one line that says why."""


class TooLong(BadMessage):
    """More than a message may say."""


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody wrote."""

    sender: str
    """A bare JID, in normal form."""
    text: str


def normal_jid(text: str) -> str:
    """A bare JID in normal form; BadMessage when it is none."""
    try:
        return percent.decode(jid_topic(text).removeprefix("xmpp:"))
    except (InvalidJid, InvalidTopic) as error:
        raise BadMessage(str(error)) from None


def clean(text: str) -> str:
    """The text without what XML cannot carry; BadMessage when nothing or too much is left."""
    if len(text) > 2 * LONGEST:
        raise TooLong(f"a message has at most {LONGEST} characters, not {len(text)}")
    cleaned = _NOT_XML.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n").strip()
    if not cleaned:
        raise BadMessage("a message says something")
    if len(cleaned) > LONGEST:
        raise TooLong(f"a message has at most {LONGEST} characters, not {len(cleaned)}")
    return cleaned


def write(message: Message) -> bytes:
    """The document."""
    return document(message.sender, TITLE, message.text)


def read(content: bytes) -> Message:
    """The message in a document that somebody sent; BadMessage when there is none."""
    channel = channel_of(content)
    return Message(creator_of(channel), clean(channel.findtext("description") or ""))


# What documents of all kinds share


def document(creator: str, title: str, text: str, more: Iterable[tuple[str, str]] = ()) -> bytes:
    """An RSS document that says it all under its channel."""
    local, _, host = jid_topic(creator).removeprefix("xmpp:").rpartition("@")
    rss = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(rss, "channel")
    for name, said in (
        ("title", title),
        ("link", f"http://{host}/{local}"),
        ("description", text),
        *more,
        (f"{{{_DC}}}creator", creator),
    ):
        ElementTree.SubElement(channel, name).text = said
    written: bytes = ElementTree.tostring(rss, encoding="utf-8", xml_declaration=True)
    return written


def channel_of(content: bytes) -> ElementTree.Element:
    """The channel of a document that somebody sent; BadMessage when there is none."""
    if len(content) > LARGEST:
        raise TooLong(f"a message has at most {LARGEST} bytes, not {len(content)}")
    # In UTF-8 a declaration cannot hide; who declares nothing expands nothing.
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadMessage("a message is in UTF-8") from None
    if "<!" in text:
        raise BadMessage("a message declares nothing")
    try:
        channel = ElementTree.fromstring(text.encode()).find("channel")
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise BadMessage(f"not XML: {error}") from None
    if channel is None:
        raise BadMessage("not RSS: there is no channel")
    return channel


def creator_of(channel: ElementTree.Element) -> str:
    """Who says that they wrote it; BadMessage when nobody does."""
    return normal_jid((channel.findtext(f"{{{_DC}}}creator") or "").strip())
