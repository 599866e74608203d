"""Lengths of time as whole nanoseconds: the constants, and the text form people write.

Time is an `int` everywhere below the facades, so that a simulation adds up to the same
instant on every machine.
"""

from __future__ import annotations

import re

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

_UNITS = {
    "ns": 1,
    "us": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "min": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 24 * 3600 * SECOND,
}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)


class InvalidDuration(ValueError):
    """A length of time that cannot be read."""


def parse_duration(text: str) -> int:
    """Nanoseconds in a text such as ``"250 ms"``, ``"1.5 s"`` or ``"2 min"``."""
    match = _TEXT.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS or len(match[1]) > 20:
        units = ", ".join(_UNITS)
        raise InvalidDuration(
            f"{text[:40]!r} is not a length of time: write a number and a unit ({units}), "
            'as in "50 ms"'
        )
    return round(float(match[1]) * _UNITS[match[2]])


def format_duration(nanoseconds: int) -> str:
    """A readable form that `parse_duration` takes again: ``1.5 s``, ``20.7 ms``."""
    for unit, size in (("s", SECOND), ("ms", MILLISECOND), ("us", MICROSECOND)):
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.6f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{nanoseconds} ns"
