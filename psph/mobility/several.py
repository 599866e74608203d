"""Several questions in one request: a list of them in MessagePack, which no question is itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

MOST = 16
"""In one request."""

_lists = msgspec.msgpack.Decoder(list[bytes])


def bundled(packets: Sequence[bytes]) -> bytes:
    """One body for all of them."""
    return packets[0] if len(packets) == 1 else msgspec.msgpack.encode(list(packets))


def unbundled(body: bytes) -> list[bytes]:
    """What a body has: itself, unless it is a list. ValueError when that is none, or too long."""
    first = body[:1]
    if not (b"\x90" <= first <= b"\x9f" or first in (b"\xdc", b"\xdd")):
        return [body]
    try:
        found = _lists.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    if len(found) > MOST:
        raise ValueError(f"{len(found)} messages are too many: send {MOST}")
    return found
