"""Events are read the same however they are cut into pieces."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import server_sent
from demo.server_sent import Received


class Pieces:
    """What aiohttp gives: the body, in pieces of any size."""

    def __init__(self, pieces):
        self._pieces = pieces

    async def iter_any(self):
        for piece in self._pieces:
            yield piece


def read(*pieces):
    async def main():
        return [event async for event in server_sent.read(Pieces(pieces))]

    return asyncio.run(main())


TEXT = (
    b"retry: 3000\n\n: still here\n\nid: 1.2.3\ndata: {\"a\": \"\xc3\xa4\"}\n\n"
    b"event: gap\r\ndata: one\r\ndata: two\r\n\r\ndata:x\n\ndata: unfinished"
)  # fmt: skip
EVENTS = [
    Received("message", '{"a": "ä"}', "1.2.3"),
    Received("gap", "one\ntwo", "1.2.3"),
    Received("message", "x", "1.2.3"),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=20))
def test_pieces_do_not_matter(cuts):
    places = [0, *sorted(cuts), len(TEXT)]
    assert read(*(TEXT[a:b] for a, b in pairwise(places))) == EVENTS


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_nonsense_is_no_trouble(pieces):
    for event in read(*pieces):
        assert isinstance(event, Received)


def test_an_event_has_bounds():
    half = b"data: " + b"x" * (server_sent.LARGEST // 2) + b"\n"
    with pytest.raises(ValueError, match="too large"):
        read(half, half, half)
    read(half + b"\n", half + b"\n", half + b"\n")
