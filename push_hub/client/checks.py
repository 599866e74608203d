"""What is right and wrong about a topic, seen as a hub and its subscribers see it: rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from push_hub.client.asking import Answer
from push_hub.client.finding import Found
from push_hub.discovery import MAX_BODY, discover
from push_hub.feeds import read_feed

FEED_TYPES: Final = frozenset(
    {
        "application/atom+xml",
        "application/rss+xml",
        "application/rdf+xml",
        "application/feed+json",
        "application/json",
        "application/xml",
        "text/xml",
    }
)

_HUB: Final = re.compile(rb"""rel\s*=\s*["']?(?:[\w-]+\s+)*hub\b""", re.IGNORECASE)


class Verdict(StrEnum):
    """How a check ended; only `must` needs a change for WebSub to work."""

    OK = "ok"
    ADVICE = "advice"
    MUST = "must"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was seen and, where it is not right, what to change."""

    check: str
    verdict: Verdict
    seen: str
    change: str = ""


def unreachable(reason: str) -> Finding:
    """The topic could not be fetched, so nothing else can be said."""
    return Finding(
        "fetch", Verdict.MUST, reason, "make the URL answer 200 to a GET from the outside"
    )


def redirects(url: str, found: Found) -> Finding:
    """Subscribers use the URL they know; each redirect is one more thing that can fail."""
    at = found.fetched.url
    if at == url:
        return Finding("redirects", Verdict.OK, "none")
    if found.fetched.permanent_url == at:
        return Finding(
            "redirects", Verdict.OK if found.topic == at else Verdict.ADVICE,
            f"moved for good to {at}", "" if found.topic == at else f"name {at} in rel=self"
        )  # fmt: skip
    return Finding(
        "redirects",
        Verdict.ADVICE,
        f"redirected for now to {at}",
        "serve the topic at its URL, or redirect with 301 or 308",
    )


def content_type(found: Found) -> Finding:
    """The hub passes the type on exactly: readers decide by it what they got."""
    said = found.fetched.content_type
    media_type = said.partition(";")[0].strip().lower()
    feed = read_feed(said, found.fetched.body or b"") or read_feed(
        "application/xml", found.fetched.body or b""
    )
    if feed is not None and media_type not in FEED_TYPES:
        return Finding(
            "content type",
            Verdict.MUST,
            f"{said}, but it is a feed",
            "serve it as application/atom+xml, application/rss+xml or application/feed+json",
        )
    if feed is not None:
        entries = len(feed.entries)
        return Finding(
            "content type",
            Verdict.OK,
            f"{said}, {entries} {'entry' if entries == 1 else 'entries'}",
        )
    if media_type in FEED_TYPES and media_type not in ("application/json", "application/xml"):
        return Finding(
            "content type",
            Verdict.MUST,
            f"{said}, but no reader would understand it as a feed",
            "run it through a feed validator, or serve it as what it is",
        )
    offered = found.links.alternates
    if media_type == "text/html" and offered:
        return Finding(
            "content type",
            Verdict.ADVICE,
            f"a page, which offers {', '.join(offered[:3])}",
            f"check the feed itself: psph check {offered[0]}",
        )
    return Finding("content type", Verdict.OK, f"{said}: delivered as it is")


def validators(found: Found) -> Finding:
    """Without them every fetch of a hub moves the whole document."""
    seen = [
        name
        for name, value in (
            ("ETag", found.fetched.etag),
            ("Last-Modified", found.fetched.last_modified),
        )
        if value
    ]
    if seen:
        return Finding("validators", Verdict.OK, " and ".join(seen))
    return Finding("validators", Verdict.ADVICE, "none", "send an ETag or Last-Modified header")


def hub_links(found: Found) -> Finding:
    """rel=hub."""
    hubs = found.links.hubs
    if not hubs and _HUB.search((found.fetched.body or b"")[:MAX_BODY]):
        return Finding(
            "rel=hub",
            Verdict.MUST,
            "in the document, but not where it is looked for",
            "put the link in the head of the page, or as a child of the feed or channel, there in "
            "the namespace http://www.w3.org/2005/Atom",
        )
    if not hubs:
        return Finding(
            "rel=hub",
            Verdict.MUST,
            "none",
            'send `Link: <https://HUB/hub>; rel="hub"` with the topic, '
            'or put <link rel="hub" href="https://HUB/hub"/> in the head of the document',
        )
    plain = [hub for hub in hubs if hub.lower().startswith("http:")]
    if plain and found.topic.lower().startswith("https:"):
        return Finding(
            "rel=hub",
            Verdict.ADVICE,
            f"{plain[0]} is not https: secrets of subscribers cross the net in the clear",
            "name the hub's https URL",
        )
    return Finding("rel=hub", Verdict.OK, ", ".join(hubs))


def agreement(found: Found) -> Finding | None:
    """Headers win; readers that look at the document only must not be led elsewhere."""
    fetched = found.fetched
    header = discover(fetched.url, fetched.links, "", b"")
    document = discover(fetched.url, (), fetched.content_type, fetched.body or b"")
    pairs = [
        ("rel=hub", set(header.hubs), set(document.hubs)),
        ("rel=self", {header.self_url or ""} - {""}, {document.self_url or ""} - {""}),
    ]
    for rel, one, other in pairs:
        if one and other and one != other:
            return Finding(
                "links agree",
                Verdict.ADVICE,
                f"{rel} is {', '.join(sorted(one))} in the Link header "
                f"and {', '.join(sorted(other))} in the document",
                "say the same in both",
            )
    return None


def self_link(found: Found, same: bool | None, reason: str = "") -> Finding:
    """rel=self; `same` says whether it leads to this document, None when nobody had to look."""
    own = found.links.self_url
    if own is None:
        return Finding(
            "rel=self",
            Verdict.MUST,
            "none",
            f'send `Link: <{found.fetched.url}>; rel="self"` with the topic, or put '
            f'<link rel="self" href="{found.fetched.url}"/> in the head of the document',
        )
    if same is None:
        return Finding("rel=self", Verdict.OK, own)
    if same:
        return Finding(
            "rel=self",
            Verdict.OK,
            f"{own}, which is what subscribers subscribe to and pings have to name",
        )
    return Finding(
        "rel=self",
        Verdict.MUST,
        f"{own}, {reason}",
        f"make rel=self the URL of this document, {found.fetched.url}",
    )


def hub_answer(hub: str, answer: Answer | None, reason: str = "") -> Finding:
    """What a hub says to a form that asks for nothing, which a hub refuses with a 4xx."""
    check = "hub answers"
    if answer is None:
        return Finding(
            check, Verdict.MUST, reason, f"start the hub at {hub}, or name another in rel=hub"
        )
    said = f" ({answer.text[:80]})" if answer.text and not answer.text.startswith("<") else ""
    seen = f"{hub} answers {answer.status}{said}"
    if 300 <= answer.status < 400:
        where = answer.location or "elsewhere"
        return Finding(check, Verdict.MUST, seen, f"name the hub's own URL in rel=hub: {where}")
    if answer.status in (404, 405, 410):
        return Finding(check, Verdict.MUST, f"{seen}: no hub takes forms there", "correct rel=hub")
    if answer.status >= 500:
        return Finding(check, Verdict.MUST, seen, "ask the hub's operator, or name another hub")
    if answer.status == 429:
        return Finding(check, Verdict.ADVICE, seen, "wait a little and check again")
    if answer.status < 300:
        return Finding(
            check,
            Verdict.ADVICE,
            f"{seen} to a form without hub.mode, which a hub refuses",
            "make sure that rel=hub leads to a hub",
        )
    return Finding(
        check, Verdict.OK, f"{hub} refuses an empty form with {answer.status}, as it should"
    )


def ping_answer(hub: str, topic: str, answer: Answer | None, reason: str = "") -> Finding:
    """What a hub says to a ping."""
    if answer is None:
        return Finding("ping", Verdict.MUST, reason, "see what the hub says, or name another")
    return Finding("ping", Verdict.OK, f"{hub} took a ping for {topic} with {answer.status}")


def must_change(findings: list[Finding]) -> bool:
    """Whether WebSub does not work for this topic as it is."""
    return any(finding.verdict is Verdict.MUST for finding in findings)


def as_json(url: str, findings: list[Finding]) -> Mapping[str, object]:
    """For programs."""
    return {
        "url": url,
        "ok": not must_change(findings),
        "findings": [
            {
                "check": finding.check,
                "verdict": str(finding.verdict),
                "seen": finding.seen,
                "change": finding.change,
            }
            for finding in findings
        ],
    }
