"""Which hubs a topic names, and what it calls itself: from its headers and its body.

Link headers come first; only when they name no hub or no self is the body asked: `<link>` in
HTML, Atom and RSS, `hubs` and `feed_url` in a JSON Feed. `feeds` are those a home page
offers. Everything here is text in, value out; nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Final

from push_hub.feeds.markup import Element, scan_xml
from push_hub.links import Link, parse_link_headers, resolve

MAX_BODY: Final = 256 << 10
"""Bytes of a body that are searched for links; heads are at the beginning."""

MAX_LINKS: Final = 50

_FEED_TYPES: Final = frozenset(
    {"application/atom+xml", "application/rss+xml", "application/feed+json", "application/json"}
)
_ATOM: Final = "http://www.w3.org/2005/Atom"


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a topic says about itself."""

    hubs: tuple[str, ...] = ()
    self_url: str | None = None
    feeds: tuple[Link, ...] = ()
    """Those it offers, each once."""

    @property
    def alternates(self) -> tuple[str, ...]:
        """Where they are."""
        return tuple(link.href for link in self.feeds)


def discover(url: str, link_headers: Iterable[str], content_type: str, body: bytes) -> Discovery:
    """The links of an answer that came from `url`."""
    headers = parse_link_headers(link_headers, url)
    body_links = _body_links(url, content_type, body[:MAX_BODY])
    hubs = _with_rel(headers, "hub") or _with_rel(body_links, "hub")
    selves = _with_rel(headers, "self") or _with_rel(body_links, "self")
    feeds: dict[str, Link] = {}
    for link in (*headers, *body_links):
        if "alternate" in link.rels and link.type in _FEED_TYPES:
            feeds.setdefault(link.href, link)
    return Discovery(tuple(hubs), selves[0] if selves else None, tuple(feeds.values()))


def _with_rel(links: Iterable[Link], rel: str) -> list[str]:
    return list(dict.fromkeys(link.href for link in links if rel in link.rels))


def _body_links(url: str, content_type: str, body: bytes) -> list[Link]:
    media_type = content_type.partition(";")[0].strip().lower()
    start = body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if media_type.endswith("json") or start.startswith(b"{"):
        return _json_links(url, body)
    if media_type == "text/html" or re.match(rb"<!doctype html|<html", start):
        return _html_links(url, body)
    if media_type.endswith("xml") or start.startswith((b"<?xml", b"<rss", b"<feed", b"<rdf")):
        return _xml_links(url, body)
    return []


def _json_links(url: str, body: bytes) -> list[Link]:
    try:
        feed = json.loads(body)
    except (ValueError, RecursionError):
        return []
    if not isinstance(feed, dict):
        return []
    links = []
    hubs = feed.get("hubs")
    for hub in (hubs if isinstance(hubs, list) else [])[:MAX_LINKS]:
        if (
            isinstance(hub, dict)
            and str(hub.get("type", "")).lower() == "websub"
            and isinstance(hub.get("url"), str)
            and (href := resolve(url, hub["url"]))
        ):
            links.append(Link(href, frozenset({"hub"})))
    own = feed.get("feed_url")
    if isinstance(own, str) and (href := resolve(url, own)):
        links.append(Link(href, frozenset({"self"})))
    return links


class _HtmlLinks(HTMLParser):
    """Collects `<link>` in the head; a `<link>` in the body could be a commenter's."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base = url
        self.links: list[Link] = []
        self.in_body = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self.in_body = True
        if self.in_body or tag not in ("link", "base"):
            return
        values = {name: value or "" for name, value in attrs}
        href = resolve(self.base, values.get("href", "")) if values.get("href") else None
        if href is None:
            return
        if tag == "base":
            self.base = href
        elif len(self.links) < MAX_LINKS:
            rels = frozenset(values.get("rel", "").lower().split())
            media_type = values.get("type", "").lower()
            self.links.append(Link(href, rels, media_type, values.get("title", "")))


def _html_links(url: str, body: bytes) -> list[Link]:
    parser = _HtmlLinks(url)
    parser.feed(body.decode(errors="replace"))
    return parser.links


def _xml_links(url: str, body: bytes) -> list[Link]:
    """`<link>` of Atom anywhere but inside an entry or item."""
    links: list[Link] = []

    def take(element: Element) -> None:
        if element.name != f"{_ATOM} link" or len(links) >= MAX_LINKS:
            return
        if any(name.rpartition(" ")[2] in ("entry", "item") for name in element.parents):
            return
        href = resolve(url, element.attributes.get("href", ""))
        if href and element.attributes.get("href"):
            rels = frozenset(element.attributes.get("rel", "alternate").lower().split())
            links.append(Link(href, rels, element.attributes.get("type", "").lower()))

    scan_xml(body, take)
    return links
