"""One fetch of a topic: conditional, redirected within the rules, bounded in time and size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin

import aiohttp

from push_hub.addresses import AddressPolicy
from push_hub.connecting import exact_url, reason_of
from push_hub.errors import AddressRefused, FetchFailed, TooLarge
from push_hub.freshness import is_strong, kept_validators, may_be_cached

_PERMANENT: Final = frozenset({301, 308})
_REDIRECTS: Final = _PERMANENT | {302, 303, 307}
_ACCEPT: Final = "application/atom+xml, application/rss+xml, application/feed+json, */*;q=0.8"
_CHUNK: Final = 64 << 10


class FetchRefused(FetchFailed):
    """The answer was an error; `retry_after` is its header, `final` says that asking again is
    useless."""

    def __init__(
        self, message: str, *, retry_after: str | None = None, final: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.final = final


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a topic answered. `body` is None when it has not changed."""

    url: str
    """Where the body came from."""
    permanent_url: str | None
    """Where the topic has moved for good, when it says so."""
    content_type: str
    body: bytes | None
    etag: str | None
    last_modified: str | None
    """Validators to ask again with; None where the answer has none that can be trusted."""
    links: tuple[str, ...]
    """Its Link headers."""
    may_be_cached: bool = False
    """Whether a cache may have answered, with what the topic said before."""


async def fetch(
    session: aiohttp.ClientSession,
    policy: AddressPolicy,
    url: str,
    *,
    etag: str | None,
    last_modified: str | None,
    announced: bool = False,
    user_agent: str,
    max_body: int,
    max_redirects: int,
) -> Fetched:
    """Fetch, or raise a FetchFailed that says why not.

    A change may be `announced`, by a ping or by another hub. Then caches are asked to ask the
    origin, and of the validators only a strong one is sent: Last-Modified is the same for two
    changes within one second.
    """
    headers = {"User-Agent": user_agent, "Accept": _ACCEPT, "Accept-Encoding": "gzip, deflate"}
    if announced:
        headers["Cache-Control"] = "no-cache"
    if etag and (is_strong(etag) or not announced):
        headers["If-None-Match"] = etag
    if last_modified and not announced:
        headers["If-Modified-Since"] = last_modified
    at, permanent = url, True
    permanent_url: str | None = None
    try:
        for _ in range(max_redirects + 1):
            target = exact_url(at)
            policy.check_host(target.host or "")
            async with session.get(target, headers=headers, allow_redirects=False) as answer:
                location = answer.headers.get("Location")
                if answer.status in _REDIRECTS and location:
                    at = _redirected(at, location)
                    permanent = permanent and answer.status in _PERMANENT
                    permanent_url = at if permanent else permanent_url
                    continue
                return await _read(answer, at, permanent_url, max_body)
    except FetchFailed:
        raise
    except AddressRefused as error:
        raise FetchRefused(str(error), final=True) from error
    except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
        raise FetchFailed(reason_of(error)) from error
    raise FetchFailed(f"more than {max_redirects} redirects")


def _redirected(at: str, location: str) -> str:
    target = urljoin(at, location).partition("#")[0]
    if not target.lower().startswith(("http://", "https://")):
        raise FetchFailed("redirected to something that is neither http nor https")
    return target


async def _read(
    answer: aiohttp.ClientResponse, at: str, permanent_url: str | None, max_body: int
) -> Fetched:
    body: bytes | None = None
    if answer.status != 304:
        if not 200 <= answer.status < 300:
            raise FetchRefused(
                f"the topic answered {answer.status}",
                retry_after=answer.headers.get("Retry-After"),
                final=answer.status == 410,
            )
        body = await _body(answer, max_body)
    return Fetched(
        at,
        permanent_url,
        passable_type(answer.headers.get("Content-Type")),
        body,
        *kept_validators(answer.headers),
        tuple(answer.headers.getall("Link", ())),
        may_be_cached(answer.headers),
    )


def passable_type(header: str | None) -> str:
    """A content type that can be passed on exactly, or the one that promises nothing."""
    if header and len(header) <= 1_000 and header.isascii() and header.isprintable():
        return header
    return "application/octet-stream"


async def _body(answer: aiohttp.ClientResponse, max_body: int) -> bytes:
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        # 32: gzip and zlib headers are told apart by themselves.
        inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    elif encoding in ("", "identity"):
        inflate = None
    else:
        raise FetchFailed(f"the content is encoded as {encoding}, which was not asked for")
    parts: list[bytes] = []
    size = raw = 0
    async for chunk in answer.content.iter_chunked(_CHUNK):
        raw += len(chunk)
        part = chunk if inflate is None else inflate.decompress(chunk, max_body - size + 1)
        size += len(part)
        if size > max_body or raw > max_body:
            raise TooLarge(f"the topic is larger than {max_body} bytes")
        parts.append(part)
    if inflate is not None and not inflate.eof:
        raise FetchFailed("the compressed content is cut short")
    return b"".join(parts)
