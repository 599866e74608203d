"""The local part of a JID: the UsernameCaseMapped profile of RFC 8265 less what RFC 7622 bars.

Width-mapped, lower case, NFC; then only characters of the PRECIS IdentifierClass (RFC 8264
section 4.2). A code point that this Python's Unicode does not know is refused, so that two
versions of Python may differ in what they accept but never in what they make of it.
"""

import unicodedata
from collections.abc import Iterator
from typing import Final

import idna

from identifiers.errors import InvalidJid, shown

# RFC 7622 section 3.3.
_MAX_BYTES: Final = 1_023
# RFC 7622 section 3.3.1: what separates the parts of a JID or breaks out of an attribute.
_BARRED: Final = frozenset("\"&'/:<>@")

# RFC 5892 section 2.6, which RFC 8264 section 9.6 takes over: exceptions to the categories.
_VALID_EXCEPTIONS: Final = frozenset("\u00df\u03c2\u06fd\u06fe\u0f0b\u3007")
_INVALID_EXCEPTIONS: Final = frozenset(
    "\u0640\u07fa\u302e\u302f\u3031\u3032\u3033\u3034\u3035\u303b"
)
_IN_CONTEXT: Final = frozenset("\u00b7\u0375\u05f3\u05f4\u30fb") | {
    chr(code) for first in (0x660, 0x6F0) for code in range(first, first + 10)
}
_JOINERS: Final = frozenset("\u200c\u200d")

# Letters, digits and marks (RFC 8264 section 9.1).
_LETTER_DIGITS: Final = frozenset({"Ll", "Lu", "Lo", "Nd", "Lm", "Mn", "Mc"})
# Conjoining jamo (section 9.9), which NFC has composed where they form a syllable, and letters
# and marks that are invisible by themselves (default ignorable, section 9.13).
_REFUSED_LETTERS: Final = (
    range(0x1100, 0x1200),
    range(0xA960, 0xA980),
    range(0xD7B0, 0xD800),
    range(0x034F, 0x0350),
    range(0x17B4, 0x17B6),
    range(0x180B, 0x1810),
    range(0xFE00, 0xFE10),
    range(0xE0100, 0xE01F0),
)


def username(text: str) -> str:
    """`text` as the profile enforces it, or InvalidJid."""
    mapped = _mapped(text)
    if len(mapped.encode(errors="replace")) > _MAX_BYTES:
        raise InvalidJid(
            f"the part of the JID before the @ has over {_MAX_BYTES:,} bytes: use a shorter one"
        )
    for position, character in enumerate(mapped):
        if not _allowed(mapped, position, character):
            raise InvalidJid(
                f"the part of the JID before the @ contains {shown(character)} "
                f"(U+{ord(character):04X}), which is not allowed there: remove it"
            )
    # Letters that change again when mapped again, or directions that mix: no user name has them.
    if _mapped(mapped) != mapped or not _one_direction(mapped):
        raise InvalidJid(
            f"{shown(text)} is not a valid user name: use letters of one direction, digits and dots"
        )
    return mapped


def _mapped(text: str) -> str:
    return unicodedata.normalize("NFC", "".join(_narrowed(text)).lower())


def _narrowed(text: str) -> Iterator[str]:
    """Full-width and half-width characters as their ordinary twins."""
    for character in text:
        kind, _, codes = unicodedata.decomposition(character).partition(" ")
        if kind in ("<wide>", "<narrow>"):
            yield from (chr(int(code, 16)) for code in codes.split())
        else:
            yield character


def _allowed(text: str, position: int, character: str) -> bool:
    if character in _BARRED or character in _INVALID_EXCEPTIONS:
        return False
    if character in _VALID_EXCEPTIONS or "!" <= character <= "~":
        return True
    try:
        if character in _IN_CONTEXT:
            return idna.valid_contexto(text, position)
        if character in _JOINERS:
            return idna.valid_contextj(text, position)
    except ValueError:
        return False
    return (
        unicodedata.category(character) in _LETTER_DIGITS
        and unicodedata.normalize("NFKC", character) == character
        and not any(ord(character) in refused for refused in _REFUSED_LETTERS)
    )


def _one_direction(text: str) -> bool:
    try:
        return idna.check_bidi(text)
    except ValueError:
        return False
