"""The entries of an Atom, RSS or JSON feed, each with a key and a digest.

feedparser reads XML feeds as they are in the wild, broken ones too. It never sees a document
that declares entities: those are the tricks (billions of laughs, files read in), and no feed
needs them. JSON Feed is read here.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

import feedparser  # type: ignore[import-untyped]

from push_hub.feeds.markup import Element, scan_xml

MAX_ENTRIES: Final = 2_000
"""More than any reader looks at. A longer feed is treated as a document: new by its digest."""

MAX_FEED: Final = 4 << 20
"""Bytes. A larger feed is treated as a document, too."""

MAX_BROKEN: Final = 128 << 10
"""Bytes of a feed that is not well-formed: feedparser takes seconds for a megabyte of those."""

_ENTITY_DECLARATION: Final = re.compile(rb"<!\s*ENTITY", re.IGNORECASE)
_DECLARED: Final = re.compile(rb"""encoding\s*=\s*["']?([\w.:-]{1,40})""")
_CHARSET: Final = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)
_FEED_START: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?(?:rss|feed|rdf)\b", re.IGNORECASE)
# feedparser's own fields that change without the entry having changed.
_IGNORED: Final = frozenset({"published_parsed", "updated_parsed", "created_parsed",
                             "expired_parsed", "base", "guidislink"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. The texts are the publisher's, as they came: sanitise before showing them."""

    key: str
    digest: bytes
    title: str = ""
    link: str = ""
    published: str = ""
    author: str = ""
    content: str = ""


@dataclass(frozen=True, slots=True)
class Feed:
    """A document that was understood as a feed."""

    title: str
    entries: tuple[Entry, ...]


def may_be_feed(content_type: str, body: bytes) -> bool:
    """What a glance tells: whether it is worth reading as a feed."""
    return _is_json(content_type) or bool(_FEED_START.search(body[:4096]))


def read_feed(content_type: str, body: bytes) -> Feed | None:
    """The feed in the body, or None when it is something else. Never raises on any bytes."""
    if not may_be_feed(content_type, body):
        return None
    if _is_json(content_type):
        return _json_feed(body)
    if _ENTITY_DECLARATION.search(body) or body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return None
    if any(not _harmless(each) for each in _encodings(content_type, body)):
        return None
    return _xml_feed(content_type, body) if _worth_reading(body) else None


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower().endswith("json")


def _encodings(content_type: str, body: bytes) -> list[str]:
    """Those that feedparser might decode the document with, by name."""
    declared = [each.decode() for each in _DECLARED.findall(body[:1024])]
    return declared + _CHARSET.findall(content_type)


def _harmless(encoding: str) -> bool:
    """Whether markup is ASCII in it: in UTF-7, say, a declaration could hide from a search."""
    try:
        return "<!ENTITY &;".encode(encoding) == b"<!ENTITY &;"
    except (LookupError, UnicodeError):
        return encoding.isascii()  # unknown here, and so to feedparser


def _worth_reading(body: bytes) -> bool:
    """Whether feedparser will be done with it soon: a quick look with expat."""
    if len(body) > MAX_FEED:
        return False
    entries = 0

    def count(element: Element) -> None:
        nonlocal entries
        entries += element.name.rpartition(" ")[2] in ("entry", "item")

    well_formed = scan_xml(body, count)
    return entries <= MAX_ENTRIES and (well_formed or len(body) <= MAX_BROKEN)


def _xml_feed(content_type: str, body: bytes) -> Feed | None:
    try:
        parsed = feedparser.parse(
            # A stream, never bytes or text: those could be taken for the name of a file.
            io.BytesIO(body),
            response_headers={"content-type": content_type},
            resolve_relative_uris=False,
            sanitize_html=False,
        )
    except Exception:  # a parser of the wild web: whatever it stumbles over is a document to us
        return None
    if not parsed.get("version") or len(parsed.entries) > MAX_ENTRIES:
        return None
    return _feed(parsed.feed.get("title"), [_xml_entry(each) for each in parsed.entries])


def _feed(title: Any, entries: list[Entry]) -> Feed:
    """Entries that share a key are told apart by their order: it must not look like a change."""
    count: Counter[str] = Counter()
    unique = []
    for entry in entries:
        count[entry.key] += 1
        again = count[entry.key]
        unique.append(entry if again == 1 else replace(entry, key=f"{entry.key} ({again})"))
    return Feed(_text(title), tuple(unique))


def _xml_entry(entry: Any) -> Entry:
    link = _text(entry.get("link"))
    contents = entry.get("content") or []
    content = _text(contents[0].get("value")) if contents else _text(entry.get("summary"))
    title = _text(entry.get("title"))
    digest = _digest({name: value for name, value in entry.items() if name not in _IGNORED})
    return Entry(
        key=_text(entry.get("id")) or link or f"digest:{digest.hex()}",
        digest=digest,
        title=title,
        link=link,
        # feedparser answers get("updated") from "published", with a warning that it will not.
        published=_text(entry["updated"] if "updated" in entry else entry.get("published")),
        author=_text(entry.get("author")),
        content=content,
    )


def _json_feed(body: bytes) -> Feed | None:
    try:
        feed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(feed, dict) or not isinstance(feed.get("items"), list):
        return None
    if not str(feed.get("version", "")).startswith("https://jsonfeed.org/version/"):
        return None
    items = feed["items"]
    if len(items) > MAX_ENTRIES or not all(isinstance(item, dict) for item in items):
        return None
    try:
        return _feed(feed.get("title"), [_json_entry(item) for item in items])
    except RecursionError:
        return None


def _json_entry(item: dict[str, Any]) -> Entry:
    digest = _digest(item)
    link = _text(item.get("url"))
    author = item.get("author")
    return Entry(
        key=_text(str(item.get("id") or "")) or link or f"digest:{digest.hex()}",
        digest=digest,
        title=_text(item.get("title")),
        link=link,
        published=_text(item.get("date_modified") or item.get("date_published")),
        author=_text(author.get("name")) if isinstance(author, dict) else "",
        content=_text(item.get("content_html") or item.get("content_text")),
    )


def _digest(value: Any) -> bytes:
    """Of everything an entry says, whatever the order of its parts."""
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _text(value: Any) -> str:
    # Lone surrogates, from JSON escapes, could not be encoded again.
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""
