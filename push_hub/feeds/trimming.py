"""Leaving out entries a subscriber already has, for Atom and RSS, without touching other bytes.

The entries are cut out of the document as it came, so that everything kept is byte for byte what
the publisher wrote. Whatever cannot be cut with certainty is delivered whole.
"""

from __future__ import annotations

from collections.abc import Container

from push_hub.feeds.markup import Element, scan_xml
from push_hub.feeds.reading import Feed

_ENTRIES = ("entry", "item")


def trim(body: bytes, feed: Feed, keep: Container[str]) -> bytes:
    """The document without the entries whose keys are not in `keep`."""
    ranges = _entry_ranges(body)
    # The same number in the same order, or we do not know which element is which entry.
    if ranges is None or len(ranges) != len(feed.entries):
        return body
    parts: list[bytes] = []
    at = 0
    for (start, end), entry in zip(ranges, feed.entries, strict=True):
        if entry.key in keep:
            continue
        parts.append(body[at:start])
        at = end
    parts.append(body[at:])
    return b"".join(parts)


def _entry_ranges(body: bytes) -> list[tuple[int, int]] | None:
    """Where each entry begins and ends; None when the document is not to be cut."""
    # Expat counts bytes of its input, which in UTF-16 would be right too; but closing tags are
    # found by their ASCII form below.
    if body[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in body[:4]:
        return None
    starts: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = []

    def begin(element: Element) -> None:
        if element.name.rpartition(" ")[2] in _ENTRIES and not _inside(element.parents):
            starts.append((len(element.parents), element.start))

    def end(name: str, depth: int, at: int) -> None:
        if starts and starts[-1][0] == depth and name.rpartition(" ")[2] in _ENTRIES:
            _, start = starts.pop()
            closed = body.find(b">", at) + 1
            ranges.append((start, closed))

    if not scan_xml(body, begin, end):
        return None
    return ranges


def _inside(parents: tuple[str, ...]) -> bool:
    return any(name.rpartition(" ")[2] in _ENTRIES for name in parents)
