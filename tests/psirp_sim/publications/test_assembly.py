"""Putting envelopes together, and the room that those under way share."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.publications.assembly import Assembly, WaitingRoom
from psirp_sim.wire.publications import UNIT, Header


def nobody() -> None:
    raise AssertionError("evicted")


def piece(envelope: bytes, first: int, last: int) -> bytes:
    """The bytes of a run of units."""
    return envelope[first * UNIT : (last + 1) * UNIT]


def of(size: int) -> bytes:
    """An envelope of which no two units are the same."""
    return b"".join(number.to_bytes(4) for number in range(-(-size // 4)))[:size]


HEADER = Header(bytes(32), bytes(32), bytes(16), 1, 1, bytes(32), {})


# Assemblies


def test_runs():
    envelope = of(9 * UNIT + 5)
    assembly = Assembly(len(envelope), nobody)
    assert list(assembly.missing()) == [(0, 9)]
    assert assembly.add(2, piece(envelope, 2, 3))
    assert list(assembly.missing()) == [(0, 1), (4, 9)]
    assert assembly.add(9, piece(envelope, 9, 9))
    assert list(assembly.missing()) == [(0, 1), (4, 8)]
    assert assembly.add(0, piece(envelope, 0, 0))
    assert list(assembly.missing()) == [(1, 1), (4, 8)]
    assert assembly.left == 6
    assert assembly.add(1, piece(envelope, 1, 5)), "some of it has come before"
    assert list(assembly.missing()) == [(6, 8)]
    assert not assembly.add(3, piece(envelope, 3, 4))
    assert assembly.left == 3
    assert assembly.add(6, piece(envelope, 6, 8))
    assert (assembly.left, list(assembly.missing())) == (0, [])
    assert assembly.data == envelope


@pytest.mark.parametrize("size", [1, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT])
def test_all_at_once(size):
    envelope = of(size)
    assembly = Assembly(size, nobody)
    assert assembly.left == -(-size // UNIT)
    assert assembly.add(0, envelope)
    assert (assembly.left, bytes(assembly.data)) == (0, envelope)
    assert not assembly.add(0, envelope)


@given(
    st.integers(1, 12 * UNIT),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11))),
    st.data(),
)
def test_runs_in_any_order(size, runs, draw):
    envelope = of(size)
    assembly = Assembly(size, nobody)
    last = -(-size // UNIT) - 1
    came: set[int] = set()
    for begin, end in (sorted((min(a, last), min(b, last))) for a, b in runs):
        units = set(range(begin, end + 1))
        assert assembly.add(begin, piece(envelope, begin, end)) == bool(units - came)
        came |= units
        missing = [unit for first, end in assembly.missing() for unit in range(first, end + 1)]
        assert missing == sorted(set(range(last + 1)) - came)
        assert assembly.left == len(missing)
    gaps = list(assembly.missing())
    assert all(end + 1 < begin for (_, end), (begin, _) in pairwise(gaps))
    for begin, end in draw.draw(st.permutations(gaps)):
        assert assembly.add(begin, piece(envelope, begin, end))
    assert (assembly.left, bytes(assembly.data)) == (0, envelope)


def test_the_pieces_go_when_it_is_complete():
    assembly = Assembly(UNIT, nobody)
    assembly.add(0, of(UNIT))
    assert assembly.header is None
    assembly.complete(HEADER, b"content")
    assert (assembly.header, assembly.content, assembly.data) == (HEADER, b"content", b"")
    assert list(assembly.missing()) == []
    assert assembly.size == UNIT, "which the room knows it by"
    assert (assembly.judged, assembly.signed, assembly.refused) == (False, False, False)


# The room


class Room(WaitingRoom):
    """Knows who had to go."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.gone: list[str] = []

    def take(self, name: str, size: int) -> Assembly:
        assembly = Assembly(size, lambda: self.gone.append(name))
        self.admit(assembly)
        return assembly


def test_who_was_not_touched_for_the_longest_goes_first():
    room = Room(100)
    first = room.take("first", 40)
    room.take("second", 40)
    room.take("third", 20)
    assert (room.bytes, room.gone) == (100, [])
    room.touch(first)
    room.take("fourth", 1)
    assert (room.bytes, room.gone) == (61, ["second"])
    room.take("fifth", 80)
    assert (room.bytes, room.gone) == (81, ["second", "third", "first"])


def test_who_comes_is_not_sent_away_at_once():
    room = Room(100)
    room.take("small", 10)
    large = room.take("larger than the room", 1_000)
    assert (room.bytes, room.gone) == (1_000, ["small"])
    room.take("next", 10)
    assert (room.bytes, room.gone) == (10, ["small", "larger than the room"])
    with pytest.raises(KeyError):
        room.release(large)


def test_room_is_given_back():
    room = Room(100)
    one, other = room.take("one", 60), room.take("other", 40)
    room.release(one)
    assert room.bytes == 40
    room.take("next", 60)
    room.release(other)
    assert (room.bytes, room.gone) == (60, [])


def test_assemblies_of_the_same_size_are_not_the_same():
    room = Room(100)
    room.take("one", 50)
    room.take("other", 50)
    assert room.bytes == 100


def test_who_is_let_go_may_come_back_at_once():
    """Whoever is told may take something in and let go of others."""
    room = WaitingRoom(100)
    told: list[int] = []

    def again() -> None:
        told.append(room.bytes)
        if len(told) == 1:
            room.admit(Assembly(30, again))

    room.admit(Assembly(60, again))
    room.admit(Assembly(60, nobody))
    assert told == [60]
    assert room.bytes == 90


@given(
    st.lists(
        st.tuples(st.sampled_from(["admit", "touch", "release"]), st.integers(0, 50)), max_size=60
    )
)
def test_the_room_is_never_overcrowded(steps):
    room = Room(100)
    there: dict[str, Assembly] = {}
    for number, (step, which) in enumerate(steps):
        if step == "admit":
            there[str(number)] = room.take(str(number), 1 + which)
        elif there:
            name = list(there)[which % len(there)]
            if step == "touch":
                room.touch(there[name])
            else:
                room.release(there.pop(name))
        for name in room.gone:
            there.pop(name, None)
        assert room.bytes == sum(each.size for each in there.values()) <= 100
