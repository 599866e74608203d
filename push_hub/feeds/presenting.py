"""Entries as browsers get them: JSON, sanitised, bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from push_hub.feeds.reading import Entry
from push_hub.feeds.sanitising import plain_text, safe_html, safe_url

MAX_TEXT: Final = 20_000
MAX_SHOWN: Final = 100


def entries_json(entries: Iterable[Entry]) -> str:
    """A JSON list; of very many entries the first."""
    shown = list(entries)[:MAX_SHOWN]
    return json.dumps(
        [
            {
                "id": entry.key[:MAX_TEXT],
                "title": plain_text(entry.title[:MAX_TEXT]),
                "link": safe_url(entry.link[:MAX_TEXT]),
                "published": plain_text(entry.published[:100]),
                "author": plain_text(entry.author[:1_000]),
                "content": safe_html(entry.content[:MAX_TEXT]),
            }
            for entry in shown
        ],
        ensure_ascii=False,
    )
