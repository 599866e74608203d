"""Link headers (RFC 8288): writing the hub's own, reading anybody's.

Discovery in bodies (HTML, Atom, RSS, JSON Feed) builds on this and lives in `discovery`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urljoin

MAX_HEADER: Final = 16_384
"""Characters of Link headers that are read; what comes after is not looked at."""

_LINK: Final = re.compile(r"\s*<([^<>]*)>")
_PARAMETER: Final = re.compile(
    r'\s*;\s*([A-Za-z0-9!#$&+.^_`|~*-]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?'
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link with its relations, lower case; `type` is a media type or empty."""

    href: str
    rels: frozenset[str]
    type: str = ""
    title: str = ""


@lru_cache(maxsize=1_024)  # a fan-out asks for the same one a thousand times
def link_header(hub: str, topic: str) -> str:
    """Both links of a delivery in one header, as section 7 of WebSub wants it."""
    return f'<{_safe(hub)}>; rel="hub", <{_safe(topic)}>; rel="self"'


def _safe(url: str) -> str:
    # Only what would end the reference, or the header, is encoded: self is the topic as spelled.
    return quote(url, safe="!#$%&'()*+,/:;=?@[]~", encoding="utf-8", errors="replace")


def parse_link_headers(headers: Iterable[str], base: str) -> list[Link]:
    """All links of the Link headers of an answer from `base`. Broken ones end their header."""
    found: list[Link] = []
    for header in headers:
        text = header[:MAX_HEADER]
        at = 0
        while link := _LINK.match(text, at):
            at = link.end()
            parameters: dict[str, str] = {}
            while parameter := _PARAMETER.match(text, at):
                at = parameter.end()
                name, quoted, plain = parameter.groups()
                value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain or ""
                parameters.setdefault(name.lower(), value)
            if "anchor" not in parameters and (href := resolve(base, link[1])):
                rels = frozenset(parameters.get("rel", "").lower().split())
                media_type = parameters.get("type", "").lower()
                found.append(Link(href, rels, media_type, parameters.get("title", "")))
            comma = re.compile(r"\s*,").match(text, at)
            if comma is None:
                break
            at = comma.end()
    return found


def resolve(base: str, reference: str) -> str | None:
    """The absolute http or https URL of a reference, or None where there is none."""
    if re.match("https?://", reference.strip(), re.IGNORECASE):
        return reference.strip()  # urljoin would change its spelling
    try:
        url = urljoin(base, reference.strip())
    except ValueError:
        return None
    return url if url.lower().startswith(("http://", "https://")) else None
