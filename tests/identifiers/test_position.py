"""Position: range, text form, order."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identifiers import InvalidPosition, Position, PublisherId

ONE = PublisherId(bytes(16))
OTHER = PublisherId(bytes([255]) * 16)
LAST = 2**64 - 1

EPOCHS = st.integers(0, LAST)
VERSIONS = st.integers(1, LAST)
POSITIONS = st.builds(
    Position, st.binary(min_size=16, max_size=16).map(PublisherId), EPOCHS, VERSIONS
)


@given(POSITIONS)
def test_text_form_comes_back(position: Position) -> None:
    text = str(position)
    assert text == f"{position.publisher}.{position.epoch}.{position.version}"
    assert Position.parse(text) == position


@given(st.text(max_size=60) | st.from_regex(r"[0-9a-f]{31,33}\.\d{1,21}\.\d{1,21}\n?"))
def test_text_parses_to_itself_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidPosition):
        assert str(Position.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{ONE}",
        f"{ONE}.1",
        f"{ONE}.1.0",
        f"{ONE}.01.1",
        f"{ONE}.1.01",
        f"{ONE}.1.-1",
        f"{ONE}.1.1.1",
        f"{ONE}.1.1\n",
        f"{ONE}. 1.1",
        f"{ONE}.1.١",
        f"{str(OTHER).upper()}.1.1",
        f"{ONE}.1.{LAST + 1}",
        f"{ONE}.{LAST + 1}.1",
        f"{ONE}.1.{'9' * 5_000}",
    ],
)
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(InvalidPosition):
        Position.parse(text)


@pytest.mark.parametrize(("epoch", "version"), [(-1, 1), (LAST + 1, 1), (0, 0), (0, LAST + 1)])
def test_out_of_range(epoch: int, version: int) -> None:
    with pytest.raises(InvalidPosition, match="out of range"):
        Position(ONE, epoch, version)


@given(EPOCHS, VERSIONS, EPOCHS, VERSIONS)
def test_order_within_a_publisher(e1: int, v1: int, e2: int, v2: int) -> None:
    a, b = Position(ONE, e1, v1), Position(ONE, e2, v2)
    assert (a < b) == (b > a) == ((e1, v1) < (e2, v2))
    assert (a <= b) == (b >= a) == ((e1, v1) <= (e2, v2))
    assert (a == b) == ((e1, v1) == (e2, v2))
    assert (a < b) == (a.sort_key < b.sort_key)


def test_no_order_between_publishers() -> None:
    mine, theirs = Position(ONE, 1, 1), Position(OTHER, 1, 2)
    assert mine != theirs
    for compare in (mine.__lt__, mine.__le__, mine.__gt__, mine.__ge__):
        assert compare(theirs) is NotImplemented
        assert compare(1) is NotImplemented
    with pytest.raises(TypeError):
        sorted([theirs, mine])
    assert sorted([theirs, mine], key=lambda p: p.sort_key) == [mine, theirs]


def test_what_follows() -> None:
    first = Position(ONE, 3, 1)
    assert first.next() == Position(ONE, 3, 2)
    assert first.next().directly_follows(first)
    assert not first.directly_follows(first)
    assert not first.directly_follows(first.next())
    assert not Position(ONE, 3, 3).directly_follows(first)
    assert not Position(ONE, 4, 2).directly_follows(first)
    assert not Position(OTHER, 3, 2).directly_follows(first)


def test_nothing_follows_the_last_version() -> None:
    with pytest.raises(InvalidPosition):
        Position(ONE, 1, LAST).next()
