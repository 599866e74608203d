"""The files of the pages, and the headers that keep strangers' text from doing anything there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from aiohttp import web

# No image is loaded from anywhere but here: a feed's images would tell its publisher who watches.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "form-action 'self'",
    )
)

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class File:
    """A file beside this module, read once."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._body = path.read_bytes()
        self._headers = {
            **HEADERS,
            "Content-Type": _TYPES[path.suffix],
            "Cache-Control": "no-cache",  # asked for again each time, and seldom sent again
            "ETag": f'"{hashlib.blake2b(self._body, digest_size=12).hexdigest()}"',
        }

    async def answer(self, request: web.Request) -> web.Response:
        if self._headers["ETag"] in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=self._headers)
        return web.Response(body=self._body, headers=self._headers)


def files() -> dict[str, File]:
    """By name."""
    here = Path(__file__).parent
    return {path.name: File(path) for path in sorted(here.iterdir()) if path.suffix in _TYPES}


def html(text: str, status: int = 200) -> web.Response:
    """A page that was made for this request."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(status=status, text=text, content_type="text/html", headers=headers)


def json_text(text: str, status: int = 200) -> web.Response:
    """The same for programs."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)
