"""The files of the pages, and the headers that keep strangers' text from doing anything there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from aiohttp import web

from push_hub.keys import HUB
from push_hub.siblings import origin


def policy(hubs: Iterable[str] = ()) -> str:
    """A Content-Security-Policy; the page may also connect to these hubs, given by origin."""
    # No image is loaded from anywhere but here: a feed's images would tell its publisher who
    # watches.
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            " ".join(("connect-src 'self'", *hubs)),
            "img-src 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "form-action 'self'",
        )
    )


HEADERS: Final = {
    "Content-Security-Policy": policy(),
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
_HUBS: Final = b"{hubs}"
"""Where the page has the list of other hubs."""


class File:
    """A file beside this module, read once."""

    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        self._headers = _file_headers(self.body, _TYPES[path.suffix])

    async def answer(self, request: web.Request) -> web.Response:
        return _file_answer(request, self.body, self._headers)


class WatchPage:
    """The page to watch topics, which knows the hubs where it may go on when this one is lost."""

    def __init__(self, file: File) -> None:
        self._before, self._after = file.body.split(_HUBS)

    async def answer(self, request: web.Request) -> web.Response:
        bases = await request.app[HUB].siblings.bases()
        body = b"".join((self._before, escape(" ".join(bases)).encode(), self._after))
        # The list is a part of what the ETag stands for, so the policy goes with it.
        headers = _file_headers(body, _TYPES[".html"])
        headers["Content-Security-Policy"] = policy(dict.fromkeys(map(origin, bases)))
        return _file_answer(request, body, headers)


def _file_headers(body: bytes, content_type: str) -> dict[str, str]:
    return {
        **HEADERS,
        "Content-Type": content_type,
        "Cache-Control": "no-cache",  # asked for again each time, and seldom sent again
        "ETag": f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"',
    }


def _file_answer(request: web.Request, body: bytes, headers: dict[str, str]) -> web.Response:
    if headers["ETag"] in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers)


def files() -> dict[str, File]:
    """By name."""
    here = Path(__file__).parent
    return {path.name: File(path) for path in sorted(here.iterdir()) if path.suffix in _TYPES}


def html(text: str, status: int = 200) -> web.Response:
    """A page that was made for this request."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(status=status, text=text, content_type="text/html", headers=headers)


def json_text(text: str, status: int = 200, allowed: str | None = None) -> web.Response:
    """The same for programs; `allowed` is an origin whose pages may read it, or `*`."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    if allowed is not None:
        headers |= {"Access-Control-Allow-Origin": allowed, "Vary": "Origin"}
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)
