"""Diagnostics as HTML. Every value is escaped on its way in, also those we made ourselves."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import urlencode

from push_hub.pages.diagnostics import Values

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="{root}pages/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{root}pages/style.css">
</head>
<body class="diagnostics">
<a class="skip" href="#main">Skip to the content</a>
<header class="bar">
<a class="brand" href="{root}"><img src="{root}pages/icon.svg" alt="" width="28" height="28">
<span>Hub</span></a>
<nav aria-label="Pages"><a href="{root}">Watch</a> <a href="{root}topics"{current}>Topics</a></nav>
</header>
<main id="main">
{body}
</main>
</body>
</html>
"""


def _page(title: str, root: str, body: str, *, listing: bool = False) -> str:
    current = ' aria-current="page"' if listing else ""
    return _PAGE.format(title=escape(title), root=root, body=body, current=current)


def message_page(title: str, text: str, root: str) -> str:
    """A page that only says something."""
    return _page(title, root, f"<h1>{escape(title)}</h1>\n<p>{escape(text)}</p>")


def topics_page(topics: list[Values], after: int | None) -> str:
    """All topics, one page of them; `after` leads to the next."""
    rows = [
        (
            f'<a href="topics/{topic["id"]}" class="url"><bdi>{escape(topic["topic"])}</bdi></a>',
            _number(topic["subscribers"]),
            _number(topic["streams"]),
            _time(topic["last_update_at"]),
            _outcome(topic["result"]),
        )
        for topic in topics
    ]
    heads = ("Topic", "Subscribers", "Browsers", "Last update", "Last fetch")
    body = [
        "<h1>Topics</h1>",
        '<form class="line" action="topics" method="get" role="search">',
        '<label for="url">Look up a topic</label>',
        '<div class="row"><input id="url" name="url" type="url" required '
        'placeholder="https://example.com/feed.xml"><button>Look up</button></div>',
        "</form>",
        _table("All topics of this hub", heads, rows) if rows else "<p>No topics yet.</p>",
    ]
    if after is not None:
        body.append(f'<p><a rel="next" href="topics?after={after}">More topics</a></p>')
    return _page("Topics", "", "\n".join(body), listing=True)


def topic_page(topic: Values, root: str, *, trusted: bool) -> str:
    """One topic."""
    fetch = topic["fetch"]
    here = f"{root}topics/{topic['id']}"
    facts = [
        ("Watched", _list(topic["watched"])),
        ("Spellings", _list(topic["spellings"], css="url")),
        ("Last ping", _time(topic["last_ping_at"])),
        *_followed(topic["following"]),
        ("Last fetch", f"{_time(fetch['last_at'])} {_outcome(fetch['result'])}"),
        ("Fetched from", f'<span class="url">{escape(fetch["url"])}</span>'),
        ("Failures in a row", _number(fetch["failures_in_a_row"])),
        ("Next fetch", _time(fetch["next_at"], "not planned")),
        ("Content type", _text(fetch["content_type"])),
        ("ETag", _text(fetch["etag"])),
        ("Last-Modified", _text(fetch["last_modified"])),
        ("Subscribers", _number(topic["subscribers"])),
        ("Latest version", _deliveries(topic["latest"])),
        ("Browsers watching", _number(topic["streams"])),
        ("Scope id", f"<code>{escape(topic['sid'])}</code>"),
        ("Rendezvous id", f"<code>{escape(topic['rid'])}</code>"),
    ]
    listed = "\n".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    body = [
        f'<h1 class="url">{escape(topic["topic"])}</h1>',
        f'<dl class="facts">\n{listed}\n</dl>',
        "<h2>Versions</h2>",
        _versions(topic["versions"]),
        "<h2>Subscriptions</h2>",
        _subscriptions(topic["subscriptions"]),
    ]
    if topic["next_subscriptions"] is not None:
        more = escape(f"{here}?{urlencode({'after': topic['next_subscriptions']})}")
        body.append(f'<p><a rel="next" href="{more}">More subscriptions</a></p>')
    if not trusted:
        body.append(
            f'<p class="note">Callbacks are masked. <a href="{escape(here)}?callbacks=full">Show '
            "them</a>: your browser asks for a password, which is the hub's admin token.</p>"
        )
    body.append(f'<p class="note"><a href="{escape(here)}?format=json">As JSON</a></p>')
    return _page(topic["topic"], root, "\n".join(body))


def _deliveries(latest: Values | None) -> str:
    """How far the latest version is with its callbacks."""
    if latest is None:
        return _text(None)
    done = f"{_number(latest['delivered'])} delivered, {_number(latest['owed'])} owed"
    if latest["next_at"] is None:
        return done
    return f"{done}; next attempt {_time(latest['next_at'])}"


def _followed(following: Values | None) -> list[tuple[str, str]]:
    """What is known of the topic's own hub, when it is followed there."""
    if following is None or following["way"] != "hub":
        return []
    return [
        ("Followed until", _time(following["lease_until"])),
        ("Last push of its hub", _time(following["last_push_at"])),
    ]


def _versions(versions: list[Values]) -> str:
    if not versions:
        return "<p>None yet.</p>"
    rows = [
        (
            f'<code class="url">{escape(each["position"])}</code>',
            _time(each["recorded_at"]),
            escape(each["origin"]),
            escape(each["content_type"]),
            _number(each["bytes"]),
        )
        for each in versions
    ]
    heads = ("Position", "Recorded", "How it came", "Content type", "Bytes")
    return _table("The latest versions in the history", heads, rows)


def _subscriptions(subscriptions: list[Values]) -> str:
    if not subscriptions:
        return "<p>None.</p>"
    rows = [
        (
            _number(each["id"]),
            f'<span class="url">{escape(each["callback"])}</span>',
            _state(each),
            _time(each["last_success_at"]),
            _failure(each),
            _number(each["waiting"]),
            _time(each["expires_at"]),
        )
        for each in subscriptions
    ]
    heads = ("Number", "Callback", "State", "Last success", "Last failure", "Waiting", "Expires")
    return _table("Who receives it", heads, rows)


def _state(subscription: Values) -> str:
    css = "good" if subscription["receiving"] else "dim"
    text = f'<span class="tag {css}">{escape(subscription["state"])}</span>'
    return f"{text} {escape(subscription['reason'])}" if subscription["reason"] else text


def _failure(subscription: Values) -> str:
    if subscription["last_failure_at"] is None:
        return _text(None)
    why = escape(subscription["last_failure"] or "")
    return f"{_time(subscription['last_failure_at'])}<br>{why}"


def _table(caption: str, heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    names = tuple(heads)
    top = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = "\n".join(
        "<tr>"
        + "".join(
            f'<td data-head="{name}">{cell}</td>' for name, cell in zip(names, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f"<table>\n<caption>{caption}</caption>\n<thead><tr>{top}</tr></thead>\n"
        f"<tbody>\n{lines}\n</tbody>\n</table>"
    )


def _list(texts: Iterable[str], css: str = "") -> str:
    items = "".join(f'<li class="{css}"><bdi>{escape(text)}</bdi></li>' for text in texts)
    return f"<ul>{items}</ul>"


def _outcome(result: str) -> str:
    css = {"ok": "good", "never fetched": "dim"}.get(result, "bad")
    return f'<span class="tag {css}">{escape(result)}</span>'


def _text(value: Any) -> str:
    return escape(str(value)) if value else '<span class="none">none</span>'


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def _time(at: float | None, otherwise: str = "never") -> str:
    if at is None:
        return f'<span class="none">{otherwise}</span>'
    moment = datetime.fromtimestamp(at, UTC)
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{moment:%Y-%m-%d %H:%M:%S} UTC</time>'
