"""Small feeds for the tests."""

from __future__ import annotations

import json


def atom(*entries, title="News"):
    """An Atom feed of (id, title) pairs."""
    items = "".join(
        f"<entry><id>urn:{key}</id><title>{text}</title>"
        f'<link href="http://example.com/{key}"/><updated>2026-01-01T00:00:00Z</updated></entry>\n'
        for key, text in entries
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<feed xmlns="http://www.w3.org/2005/Atom"><title>{title}</title>\n{items}</feed>\n'
    ).encode()


def rss(*entries):
    """An RSS 2.0 feed of (guid, title) pairs."""
    items = "".join(
        f"<item><guid>urn:{key}</guid><title>{text}</title></item>" for key, text in entries
    )
    return f'<rss version="2.0"><channel><title>News</title>{items}</channel></rss>'.encode()


def json_feed(*entries):
    """A JSON Feed of (id, title) pairs."""
    return json.dumps(
        {
            "version": "https://jsonfeed.org/version/1.1",
            "title": "News",
            "items": [{"id": f"urn:{key}", "title": text} for key, text in entries],
        }
    ).encode()
