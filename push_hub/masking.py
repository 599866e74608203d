"""URLs as strangers and logs may see them: without what only their owners should know."""

from __future__ import annotations

from urllib.parse import urlsplit


def masked_callback(callback: str) -> str:
    """Who it is, and not how to reach it."""
    parts = urlsplit(callback)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def masked_topic(url: str) -> str:
    """Without its query, where tokens of private feeds are."""
    before, question, _ = url.partition("?")
    return f"{before}?…" if question else url
