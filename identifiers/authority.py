"""URLs of the form scheme://host:port/path?query#fragment: their parts, and host and port normal.

What the path and the query mean is left to the kind of topic (web.py, mqtt.py).
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from identifiers import percent
from identifiers.errors import InvalidHost, InvalidPort, RelativeTopic, UserinfoInTopic, shown
from identifiers.hosts import normalise_host

DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443, "mqtt": 1883}

# RFC 3986 appendix B, after the scheme. It matches whatever begins with "//".
_PARTS: Final = re.compile(r"//([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_DIGITS: Final = re.compile("[0-9]+")
_LAST_PORT: Final = 65_535


class Site(NamedTuple):
    """Host and port in normal form; `text` is both, as a URL holds them."""

    text: str
    host: str


class Parts(NamedTuple):
    """The parts of a URL. Query and fragment begin with their mark, or are empty."""

    site: Site
    path: str
    query: str
    fragment: str


def split(scheme: str, rest: str) -> Parts:
    """The parts of the URL `scheme`:`rest`."""
    parts = _PARTS.fullmatch(rest)
    if parts is None:
        raise RelativeTopic(
            f"the topic has no host: write {scheme}://, a host and a path, "
            f"such as {scheme}://example.com/feed"
        )
    authority, path, query, fragment = parts.groups(default="")
    return Parts(site(scheme, authority), path, query, fragment)


def site(scheme: str, authority: str) -> Site:
    """What stands between "//" and the path: a host, perhaps a port, and nothing else."""
    if "@" in authority:
        raise UserinfoInTopic(
            'the topic has a user name or password before its host: remove all up to the "@"'
        )
    host_text, port_text = _split_port(authority)
    if not host_text:
        raise InvalidHost(f"the host is empty: write one, such as {scheme}://example.com/feed")
    host = normalise_host(host_text if host_text[0] == "[" else percent.decode(host_text))
    port = _port(port_text)
    text = host if port in (None, DEFAULT_PORTS[scheme]) else f"{host}:{port}"
    return Site(text, host)


def _split_port(authority: str) -> tuple[str, str]:
    if authority.startswith("["):
        # The colons of an IPv6 address are not the port's.
        address, bracket, rest = authority.partition("]")
        if rest and not rest.startswith(":"):
            raise InvalidHost(
                f"{shown(authority)} has something other than a port after the bracket: remove it"
            )
        return address + bracket, rest[1:]
    host, _, port = authority.partition(":")
    if ":" in port:
        raise InvalidHost(
            f"{shown(authority)} has more than one colon: "
            "write an IPv6 address in brackets, such as [2001:db8::1]"
        )
    return host, port


def _port(text: str) -> int | None:
    if not text:
        return None
    # Leading zeros mean nothing, and six digits are enough to see that it is too much.
    number = int(text.lstrip("0")[:6] or "0") if _DIGITS.fullmatch(text) else 0
    if not 1 <= number <= _LAST_PORT:
        raise InvalidPort(f"the port {shown(text)} is not a number from 1 to {_LAST_PORT}: fix it")
    return number
