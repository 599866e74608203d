"""Putting envelopes together, and the room that those under way share."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.publications.assembly import LEFT_ALONE, Assembly, WaitingRoom
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
    """Knows who had to go, and how late it is."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.gone: list[str] = []
        self.now = 0

    def take(self, name: str, size: int) -> Assembly | None:
        assembly = Assembly(size, lambda: self.gone.append(name))
        return assembly if self.admit(assembly, self.now) else None


def test_what_was_left_alone_for_the_longest_goes_first():
    room = Room(100)
    first = room.take("first", 40)
    room.take("second", 40)
    room.take("third", 20)
    assert (room.bytes, room.gone) == (100, [])
    room.now = LEFT_ALONE
    room.touch(first, room.now)
    assert room.take("fourth", 1) is not None
    assert (room.bytes, room.gone) == (61, ["second"])
    room.now *= 2
    assert room.take("fifth", 80) is not None
    assert (room.bytes, room.gone) == (81, ["second", "third", "first"])


def test_what_is_being_worked_on_does_not_make_room():
    """Otherwise two large ones would push each other out for ever."""
    room = Room(100)
    assert room.take("one", 70) is not None
    room.now = LEFT_ALONE - 1
    assert room.take("other", 70) is None
    assert (room.bytes, room.gone) == (70, [])
    room.now = LEFT_ALONE
    assert room.take("other", 70) is not None
    assert (room.bytes, room.gone) == (70, ["one"])


def test_an_empty_room_takes_anything():
    room = Room(100)
    assert room.take("larger than the room", 1_000) is not None
    assert room.take("next", 1) is None


def test_room_is_given_back():
    room = Room(100)
    one, other = room.take("one", 60), room.take("other", 40)
    room.release(one)
    assert room.bytes == 40
    assert room.take("next", 60) is not None
    room.release(other)
    assert (room.bytes, room.gone) == (60, [])
    with pytest.raises(KeyError):
        room.release(one)


def test_assemblies_of_the_same_size_are_not_the_same():
    room = Room(100)
    room.take("one", 50)
    room.take("other", 50)
    assert room.bytes == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["admit", "touch", "release"]), st.integers(0, 50)), max_size=60
    )
)
def test_the_room_is_never_overcrowded(steps):
    room = Room(100)
    there: dict[str, Assembly] = {}
    for number, (step, which) in enumerate(steps):
        room.now += LEFT_ALONE // 4
        if step == "admit":
            assembly = room.take(str(number), 1 + which)
            if assembly is not None:
                there[str(number)] = assembly
        elif there:
            name = list(there)[which % len(there)]
            if step == "touch":
                room.touch(there[name], room.now)
            else:
                room.release(there.pop(name))
        for name in room.gone:
            there.pop(name, None)
        room.gone.clear()
        assert room.bytes == sum(each.size for each in there.values()) <= 100
