"""Who may use the page and its API.

On loopback everybody on this machine may, but no other web page in the same browser: the name in
the address bar must be the machine's own (a stranger's name may be made to lead here), and what
changes something must come from our page or from no page. Beyond loopback a token is asked for.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

_POLICY = "default-src 'self'; base-uri 'none'; frame-ancestors 'none'"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def guard(token: str | None) -> Middleware:
    """None asks for no token, and answers to the names of loopback only."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token is None and not is_loopback(_host(request.host)):
            raise web.HTTPMisdirectedRequest(text=f"this is not {request.host[:255]}\n")
        origin = request.headers.get("Origin")
        if request.method != "GET" and origin not in (None, f"http://{request.host}"):
            raise web.HTTPForbidden(text="another page may not do that\n")
        if token is not None and not _shown(request, token):
            raise web.HTTPUnauthorized(
                text="open the address that `psph up` printed: it has the token in it\n"
            )
        if token is not None and request.path == "/" and "token" in request.query:
            # The address bar, and whoever looks at it, need not keep the token.
            answer = web.HTTPSeeOther("/")
            answer.set_cookie(_cookie(request), token, httponly=True, samesite="Strict", path="/")
            raise answer
        return await handler(request)

    return guarded


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def headers(
    hubs: Iterable[str] = (),
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """What every answer has: nothing of other hosts is loaded, whatever a feed brings, and only
    these hubs are connected to."""
    policy = "; ".join([_POLICY, " ".join(["connect-src 'self'", *hubs])])

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        for name, value in (_HEADERS | {"Content-Security-Policy": policy}).items():
            response.headers.setdefault(name, value)

    return add


def _shown(request: web.Request, token: str) -> bool:
    header = request.headers.get("Authorization", "").removeprefix("Bearer ")
    shown = (request.cookies.get(_cookie(request)), request.query.get("token"), header)
    right = [hmac.compare_digest(_raw(each), _raw(token)) for each in shown if each]
    return any(right)


def _raw(text: str) -> bytes:
    return text.encode(errors="replace")


def _cookie(request: web.Request) -> str:
    # Cookies do not know ports: another world on this machine has another one.
    return f"psph-{urlsplit('//' + request.host).port or 80}"


def _host(text: str) -> str:
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""
