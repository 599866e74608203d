"""Several messages in one body, of a request or of an answer: a list of them in MessagePack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

SEVERAL: Final = "application/x-psph-several"
"""The media type of a list; a message alone has another one."""
ONE: Final = "application/octet-stream"
MOST: Final = 16
"""In one body."""

_lists = msgspec.msgpack.Decoder(list[bytes])


def bundled(packets: Sequence[bytes]) -> tuple[bytes, str]:
    """One body for all of them, and its media type."""
    if len(packets) == 1:
        return packets[0], ONE
    return msgspec.msgpack.encode(list(packets)), SEVERAL


def unbundled(body: bytes, media_type: str) -> list[bytes]:
    """The messages of a body. ValueError when it is no list, or too long a one."""
    if media_type != SEVERAL:
        return [body]
    try:
        found = _lists.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    if len(found) > MOST:
        raise ValueError(f"{len(found)} messages are too many: send {MOST}")
    return found
