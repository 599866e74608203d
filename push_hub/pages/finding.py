"""What a URL that somebody typed offers to watch: itself, or the feeds its page names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from identifiers import InvalidTopic, Topic, identify
from push_hub.discovery import discover
from push_hub.feeds import read_feed
from push_hub.feeds.sanitising import plain_text, safe_url
from push_hub.fetching import Fetched

MAX_FEEDS: Final = 20
_MAX_TITLE: Final = 200
_HTML: Final = ("text/html", "application/xhtml+xml")


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that can be watched."""

    topic: str
    canonical: str
    title: str
    type: str


@dataclass(frozen=True, slots=True)
class Findings:
    """`kind` is feed, page or document; a page offers `feeds`, the others themselves."""

    kind: str
    itself: Offer
    feeds: tuple[Offer, ...]
    hubs: tuple[str, ...]
    """That it names: who of them tells of news."""


def look(topic: Topic, fetched: Fetched) -> Findings:
    """What an answer to a fetch of the topic offers. Any bytes will do."""
    body = fetched.body or b""
    media_type = fetched.content_type.partition(";")[0].strip().lower()
    links = discover(fetched.url, fetched.links, fetched.content_type, body)
    hubs = tuple(hub for hub in links.hubs[:MAX_FEEDS] if safe_url(hub))
    feed = read_feed(fetched.content_type, body)
    title = plain_text(feed.title)[:_MAX_TITLE] if feed else ""
    itself = Offer(topic.spelling, topic.canonical, title, media_type)
    if feed is not None:
        return Findings("feed", itself, (), hubs)
    if media_type not in _HTML:
        return Findings("document", itself, (), hubs)
    offers: dict[str, Offer] = {}
    for link in links.feeds:
        try:
            found = identify(link.href)
        except InvalidTopic:
            continue
        named = plain_text(link.title)[:_MAX_TITLE]
        offers.setdefault(found.canonical, Offer(found.spelling, found.canonical, named, link.type))
    return Findings("page", itself, tuple(offers.values())[:MAX_FEEDS], hubs)
