"""The URLs of callbacks: which are acceptable, and how the hub's questions are added to them.

The callback belongs to the subscriber: its own query string is kept as it is and the hub's
parameters are appended, never merged, even where a name occurs twice.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlencode, urlsplit

from identifiers.hosts import normalise_host
from push_hub.errors import BadRequest

MAX_CALLBACK_BYTES: Final = 2_048

_FORBIDDEN: Final = re.compile("[\x00-\x20\x7f-\x9f\ud800-\udfff]")
_TRIPLET: Final = re.compile("%[0-9A-Fa-f]{2}")
_UNRESERVED: Final = re.compile("[A-Za-z0-9._~-]")


def check_callback(callback: str) -> str:
    """The callback as it will be used, or a BadRequest that says what is wrong with it.

    Escapes of unreserved characters are decoded (`%7E` is `~`); nothing else is changed, because
    the subscriber's exact URL is part of the subscription's key.
    """
    if len(callback.encode(errors="surrogatepass")) > MAX_CALLBACK_BYTES:
        raise BadRequest(
            f"hub.callback is longer than {MAX_CALLBACK_BYTES} bytes: use a shorter one"
        )
    if _FORBIDDEN.search(callback):
        raise BadRequest("hub.callback contains white space or control characters: encode them")
    if "#" in callback:
        raise BadRequest("hub.callback has a fragment, which no request can carry: leave it out")
    host_of(callback)
    return _TRIPLET.sub(_decode_unreserved, callback)


def host_of(callback: str) -> str:
    """Host and port of a callback in normal form: what limits per host count by."""
    try:
        parts = urlsplit(callback)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise BadRequest("hub.callback is no valid URL: check its host and port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise BadRequest("hub.callback must be an absolute http or https URL")
    if parts.username is not None or parts.password is not None:
        raise BadRequest("hub.callback contains a user name: use an unguessable path instead")
    if port == 0:
        raise BadRequest("hub.callback names port 0: use a port from 1 to 65535")
    try:
        normal = normalise_host(f"[{host}]" if ":" in host else host)
    except ValueError as error:
        raise BadRequest(f"hub.callback: {error}") from None
    return f"{normal}:{port or (443 if parts.scheme == 'https' else 80)}"


def _decode_unreserved(triplet: re.Match[str]) -> str:
    character = chr(int(triplet[0][1:], 16))
    return character if _UNRESERVED.fullmatch(character) else triplet[0]


def with_query(callback: str, parameters: list[tuple[str, str]]) -> str:
    """The callback with parameters appended to whatever query it has."""
    added = urlencode(parameters)
    if "?" not in callback:
        return f"{callback}?{added}"
    separator = "" if callback.endswith(("?", "&")) else "&"
    return f"{callback}{separator}{added}"


def verification_url(
    callback: str,
    *,
    mode: str,
    topic: str,
    challenge: str,
    lease_seconds: int | None,
    verify_token: str | None = None,
) -> str:
    """Where to ask whether the subscriber meant it. `topic` is in the subscriber's spelling."""
    parameters = [("hub.mode", mode), ("hub.topic", topic), ("hub.challenge", challenge)]
    if lease_seconds is not None:
        parameters.append(("hub.lease_seconds", str(lease_seconds)))
    if verify_token is not None:
        parameters.append(("hub.verify_token", verify_token))
    return with_query(callback, parameters)


def denial_url(callback: str, *, topic: str, reason: str) -> str:
    """Where to tell that a subscription was refused or has been ended by the hub."""
    return with_query(
        callback, [("hub.mode", "denied"), ("hub.topic", topic), ("hub.reason", reason)]
    )
