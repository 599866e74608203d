"""Percent-encoding (RFC 3986 sections 2.1 and 6.2.2): normal form, decoding, encoding.

All text is UTF-8. Which characters a part of a topic may hold unencoded is its own business.
"""

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from identifiers.errors import BadPercentEncoding, shown

SUB_DELIMS: Final = "!$&'()*+,;="
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

_BROKEN: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_TRIPLET: Final = re.compile("%[0-9A-Fa-f]{2}")


def normalise(text: str, raw: str) -> str:
    """`text` with every escape in normal form, and encoded what is neither unreserved nor in `raw`.

    Escapes of unreserved characters are decoded; the hexadecimal digits of the others become
    upper case.
    """
    _check(text)
    return _TRIPLET.sub(_normal_triplet, quote(text, safe=raw + "%"))


def decode(text: str) -> str:
    """The text that `text` encodes."""
    if "%" not in text:
        return text
    _check(text)
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise BadPercentEncoding(
            f"the escapes in {shown(text)} are not UTF-8: encode the text as UTF-8 first"
        ) from None


def encode(text: str, raw: str) -> str:
    """`text` with every character encoded that is neither unreserved nor in `raw`."""
    return quote(text, safe=raw)


def _check(text: str) -> None:
    if broken := _BROKEN.search(text):
        part = text[broken.start() : broken.start() + 3]
        raise BadPercentEncoding(
            f"{shown(part)} is not a percent-encoded byte: write %25 for a percent sign"
        )


def _normal_triplet(triplet: re.Match[str]) -> str:
    character = chr(int(triplet[0][1:], 16))
    return character if character in _UNRESERVED else triplet[0].upper()
