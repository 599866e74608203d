"""A pass over XML that cannot be tricked: expat with every kind of entity declaration refused.

It reports elements with their place in the bytes. Whoever wants the feed's meaning reads it with
`reading`; this is for links in the head of a feed and for cutting entries out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.parsers import expat

MAX_DEPTH: Final = 100
MAX_ELEMENTS: Final = 200_000


class _Stop(Exception):
    """The document is hostile, too long or too deep: what was seen so far is all there will be."""


@dataclass(frozen=True, slots=True)
class Element:
    """An element as it begins. Names are "namespace name", or the name alone."""

    name: str
    attributes: Mapping[str, str]
    parents: tuple[str, ...]
    start: int


def scan_xml(
    body: bytes,
    begin: Callable[[Element], None],
    end: Callable[[str, int, int], None] | None = None,
) -> bool:
    """Report each element; `end` gets its name, depth and the byte after it.

    True when the whole document was well-formed and free of entity declarations. Never raises.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parents: list[str] = []
    count = 0

    def refuse(*_: Any) -> Any:
        raise _Stop

    def start_element(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(parents) >= MAX_DEPTH or count > MAX_ELEMENTS:
            raise _Stop
        begin(Element(name, attributes, tuple(parents), parser.CurrentByteIndex))
        parents.append(name)

    def end_element(name: str) -> None:
        parents.pop()
        if end is not None:
            end(name, len(parents), parser.CurrentByteIndex)

    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    parser.EntityDeclHandler = refuse
    parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(body, True)
    except (_Stop, expat.ExpatError, ValueError, LookupError):
        return False
    return True
