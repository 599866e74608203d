"""Entries fit for a browser: markup by an allow-list, links by their scheme.

The stream and the page show text of strangers; the Content-Security-Policy of the page is the
second wall, this is the first.
"""

from __future__ import annotations

import html
import re
from typing import Final

import nh3

_TAGS: Final = {
    "a", "abbr", "b", "blockquote", "br", "cite", "code", "dd", "del", "dl", "dt", "em", "h1", "h2",
    "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol", "p", "pre", "q", "s",
    "small", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul",
}  # fmt: skip
_ATTRIBUTES: Final = {"a": {"href", "title"}, "img": {"src", "alt", "title"}, "abbr": {"title"}}
_SCHEMES: Final = {"http", "https", "mailto"}

_TAG: Final = re.compile(r"<[^>]*>")
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def safe_html(markup: str) -> str:
    """The markup with nothing in it that could run, style the page or load by itself an object."""
    return nh3.clean(
        markup,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )


def plain_text(text: str) -> str:
    """One line of text without markup, for titles and names. It still has to be escaped."""
    stripped = html.unescape(_TAG.sub(" ", text))
    return " ".join(_CONTROL.sub(" ", stripped).split())


def safe_url(url: str) -> str:
    """The URL when a browser may follow it, otherwise nothing."""
    stripped = url.strip()
    if _CONTROL.search(stripped) or not re.match(r"https?://", stripped, re.IGNORECASE):
        return ""
    return stripped
