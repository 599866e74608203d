"""HOST:PORT as people write it in configuration files and on the command line."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_TEXT = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\[\]:\s]+)):(?P<port>\d{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:4001``, ``node.example:4001`` or ``[::1]:4001``."""
    match = _TEXT.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{text[:80]!r} is no address: write HOST:PORT, or [IPV6]:PORT")
    return match["six"] or match["host"], int(match["port"])


def check_public_url(key: str, text: str) -> None:
    """ValueError, which names the key, unless the world can reach a hub there."""
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or parts.username
    ):
        raise ValueError(f"{key}: {text[:80]!r} must be http or https, a host and perhaps a path")
