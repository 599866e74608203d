"""What the headers of an answer say about its age: whether a cache may have given it (RFC 9111),
and which of its validators can be trusted when the topic is asked again (RFC 9110)."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

_SETTLED_S: Final = 60
"""Last-Modified counts seconds: content may change twice in one. A date this much older than the
answer is of a second that is over, also where two clocks or a cache are involved."""


def is_strong(etag: str | None) -> bool:
    """Whether an entity tag is another one with every other content."""
    return etag is not None and etag.startswith('"')


def may_be_cached(headers: Mapping[str, str]) -> bool:
    """Whether the topic may say something else by now than the answer with these headers.

    In doubt it may: without a strong validator nothing shows that the origin was asked. Headers
    are those of one answer, with names in any case.
    """
    if "Age" in headers or not is_strong(headers.get("ETag")):
        return True
    control = _directives(headers.get("Cache-Control", ""))
    if "no-store" in control or "no-cache" in control:
        return False
    for lifetime in ("s-maxage", "max-age"):
        if lifetime in control:
            return control[lifetime].strip('"') != "0"
    if "Expires" in headers:
        expires, date = _date(headers["Expires"]), _date(headers.get("Date"))
        return expires is not None and (date is None or expires > date)
    # RFC 9111, 4.2.2: without a lifetime a cache may choose one, by the age of the content.
    return "Last-Modified" in headers


def kept_validators(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """ETag and Last-Modified of an answer, without those that cannot tell it from a later one."""
    etag, last_modified = _bounded(headers.get("ETag")), _bounded(headers.get("Last-Modified"))
    modified, date = _date(last_modified), _date(headers.get("Date"))
    if modified is None or date is None or date - modified >= _SETTLED_S:
        return etag, last_modified
    # nginx makes the tag of a file from the seconds and the size: no better than the date.
    of_seconds = etag is not None and f'"{int(modified):x}-' in etag
    return None if of_seconds else etag, None


def _directives(header: str) -> dict[str, str]:
    """The directives of Cache-Control, with their values."""
    pairs = (each.partition("=") for each in header.lower().split(","))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _date(header: str | None) -> float | None:
    """Seconds since 1970 of an HTTP date; None for anything else, such as `Expires: 0`."""
    try:
        return None if header is None else parsedate_to_datetime(header).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(validator: str | None) -> str | None:
    """A validator worth sending back; a huge one would make our own requests fail."""
    if validator and len(validator) <= 1_000 and validator.isascii() and validator.isprintable():
        return validator
    return None
