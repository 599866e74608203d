"""What a publisher keeps: its bounds, and what is left of it after a crash."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.publications.history import History, HistoryFull, Shelf
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.simulator.engine import Engine
from psirp_sim.runtime.simulator.storage import SimulatedStorage

SID = bytes(range(32))
ONE, OTHER = b"one".ljust(32), b"other".ljust(32)
ME, SOMEBODY = b"me".ljust(16), b"somebody".ljust(16)
SETTINGS = PublicationSettings(history_versions=5, history_bytes=100, all_history_bytes=200)


class Chosen(Random):
    """How many of the unfinished writes survive a crash; all take the same time."""

    survive = 0

    def randint(self, a: int, b: int) -> int:
        return min(self.survive, b) if a == 0 else a


@dataclass
class Node:
    """A node with a disk; the lives of its shelf end, the disk stays."""

    settings: PublicationSettings = SETTINGS
    random: Chosen = field(default_factory=Chosen)
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        self.storage = SimulatedStorage(self.engine, self.random, lambda done: done())
        self.shelf = Shelf(self.settings, self.storage)

    def history(self, rid: bytes = ONE, *, durable: bool = True, epoch: int = 7) -> History:
        history = History(self.shelf, SID, rid, durable=durable)
        if not history.publisher:
            history.begin(ME, epoch, 0)
        return history

    def wait(self) -> None:
        """Until every write is durable."""
        self.engine.run_until(self.engine.now + SECOND)

    def crash(self, survive: int = 0) -> None:
        self.random.survive = survive
        self.storage.crash()
        self.shelf = Shelf(self.settings, self.storage)

    def keys(self) -> int:
        return len(list(self.storage.scan(b"")))


def envelope(version: int, size: int = 10) -> bytes:
    return f"{version}:".encode().ljust(size, b".")


def nothing() -> None:
    pass


def filled(history: History, count: int, size: int = 10) -> History:
    for _ in range(count):
        history.append(envelope(history.latest + 1, size), nothing)
    return history


def kept(history: History) -> list[int]:
    """The versions that are there; all of them must be what they were."""
    versions = list(range(history.first, history.latest + 1))
    for version in versions:
        assert history.get(version).startswith(f"{version}:".encode())
    assert history.get(history.first - 1) is None
    assert history.get(history.latest + 1) is None
    assert len(history) == len(versions)
    assert history.bytes == sum(len(history.get(version)) for version in versions)
    return versions


# Bounds


def test_before_the_first_version():
    history = Node().history(durable=False)
    assert (history.first, history.latest, len(history), history.bytes) == (1, 0, 0, 0)
    assert kept(history) == []


def test_versions_are_numbered_and_kept():
    history = filled(Node().history(durable=False), 3)
    assert kept(history) == [1, 2, 3]
    assert (history.latest_bytes, history.spare) == (10, 20)


def test_somebody_else_has_numbered_the_versions():
    node = Node()
    history = node.history(durable=False)
    history.begin(SOMEBODY, 9, 41)
    assert history.first == 42
    assert kept(filled(history, 2)) == [42, 43]
    assert (history.publisher, history.epoch) == (SOMEBODY, 9)


def test_bounded_by_versions():
    assert kept(filled(Node().history(durable=False), 12)) == [8, 9, 10, 11, 12]


def test_bounded_by_bytes():
    history = filled(Node().history(durable=False), 12, 30)
    assert kept(history) == [10, 11, 12]
    history.append(envelope(13, 95), nothing)
    assert kept(history) == [13]


def test_the_latest_is_kept_in_any_case():
    history = filled(Node().history(durable=False), 3)
    history.append(envelope(4, 150), nothing)
    assert kept(history) == [4]
    assert kept(filled(history, 1)) == [5], "both would be too much"


def test_all_streams_together():
    """The one that was quiet for the longest loses its oldest versions first."""
    node = Node()
    quiet = filled(node.history(ONE, durable=False), 4, 20)
    busy = filled(node.history(OTHER, durable=False), 4, 20)
    assert node.shelf.bytes == 160
    third = filled(node.history(b"third".ljust(32), durable=False), 3, 30)
    assert (kept(quiet), kept(busy), kept(third)) == ([4], [1, 2, 3, 4], [1, 2, 3])
    assert node.shelf.bytes == 20 + 80 + 90
    filled(quiet, 2, 20)
    assert (kept(quiet), kept(busy), kept(third)) == ([4, 5, 6], [3, 4], [1, 2, 3])
    filled(quiet, 2, 20)
    assert (kept(quiet), kept(busy), kept(third)) == ([4, 5, 6, 7, 8], [4], [2, 3])
    assert node.shelf.bytes == 180


def test_no_room_for_another_stream():
    node = Node()
    first = filled(node.history(ONE, durable=False), 1, 100)
    second = filled(node.history(OTHER, durable=False), 1, 90)
    third = node.history(b"third".ljust(32), durable=False)
    with pytest.raises(HistoryFull, match=r"raise publications\.all_history_bytes"):
        third.append(envelope(1, 11), nothing)
    assert (kept(first), kept(second), kept(third)) == ([1], [1], [])
    assert (third.latest, node.shelf.bytes) == (0, 190), "as if nothing had been tried"
    assert kept(filled(third, 1)) == [1]


def test_a_stream_can_exchange_its_latest_version_for_another():
    node = Node()
    first = filled(node.history(ONE, durable=False), 1, 100)
    filled(node.history(OTHER, durable=False), 1, 100)
    first.append(envelope(2, 100), nothing)
    assert (kept(first), node.shelf.bytes) == ([2], 200)
    with pytest.raises(HistoryFull):
        first.append(envelope(3, 101), nothing)
    assert kept(first) == [2]


def test_the_spare_versions_of_others_make_room():
    node = Node()
    others = [filled(node.history(bytes([n]) * 32, durable=False), 5, 10) for n in range(3)]
    large = node.history(durable=False)
    large.append(envelope(1, 170), nothing)
    assert [kept(each) for each in others] == [[5], [5], [5]]
    assert node.shelf.bytes == 200
    with pytest.raises(HistoryFull):
        node.history(OTHER, durable=False).append(envelope(1, 1 + 2), nothing)


def test_one_that_is_dropped_makes_room():
    node = Node()
    first = filled(node.history(ONE, durable=False), 2, 50)
    first.close(keep=False)
    assert (len(first), node.shelf.bytes) == (0, 0)
    assert kept(filled(node.history(OTHER, durable=False), 1, 200)) == [1]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(3, 90) | st.just(0)), max_size=60),
    st.booleans(),
)
def test_the_bounds_hold_whatever_is_published(steps, durable):
    node = Node()
    histories = [node.history(bytes([n]) * 32, durable=durable) for n in range(4)]
    for which, size in steps:
        history = histories[which]
        if size:
            before = history.latest
            with suppress(HistoryFull):
                history.append(envelope(before + 1, size), nothing)
                assert history.get(history.latest) == envelope(before + 1, size)
        else:
            history.begin(ME, history.epoch + 1, 0)
        for each in histories:
            assert len(kept(each)) <= 5
            assert each.bytes <= 100
            assert len(each) or not each.latest, "the latest is always there"
        assert node.shelf.bytes == sum(each.bytes for each in histories) <= 200
    node.wait()
    node.crash()
    for n, each in enumerate(histories):
        again = node.history(bytes([n]) * 32, durable=durable)
        if durable and each.latest:
            assert (again.epoch, kept(again)) == (each.epoch, kept(each))


# What is told, and when


def test_what_is_not_durable_may_be_told_at_once():
    node = Node()
    told: list[int] = []
    history = node.history(durable=False)
    history.append(envelope(1), lambda: told.append(history.latest))
    assert told == [1]
    assert node.keys() == 0


def test_a_durable_version_may_be_told_once_it_is_written():
    node = Node()
    told: list[int] = []
    history = node.history()
    for version in (1, 2, 3):
        history.append(envelope(version), lambda version=version: told.append(version))
    assert told == []
    assert kept(history) == [1, 2, 3]
    node.wait()
    assert told == [1, 2, 3]


# Durable streams


def test_a_durable_stream_goes_on():
    node = Node()
    filled(node.history(), 7)
    node.wait()
    node.crash()
    history = node.history(epoch=8)
    assert (history.publisher, history.epoch) == (ME, 7)
    assert kept(history) == [3, 4, 5, 6, 7]
    assert node.shelf.bytes == 50
    assert kept(filled(history, 1)) == [4, 5, 6, 7, 8]


def test_a_stream_that_is_not_durable_begins_again():
    node = Node()
    filled(node.history(durable=False), 7)
    node.crash()
    assert kept(node.history(durable=False)) == []
    assert kept(node.history(durable=True)) == []


def test_streams_do_not_mix():
    node = Node()
    filled(node.history(ONE), 2)
    filled(node.history(OTHER), 3)
    filled(History(node.shelf, SID[::-1], ONE, durable=True), 4)
    node.wait()
    node.crash()
    assert kept(node.history(ONE)) == [1, 2]
    assert kept(node.history(OTHER)) == [1, 2, 3]
    assert kept(History(node.shelf, SID[::-1], ONE, durable=True)) == [1, 2, 3, 4]


def test_what_is_forgotten_is_not_on_the_disk_either():
    node = Node()
    history = filled(node.history(), 30)
    assert node.keys() == len(history) + 1
    history.begin(ME, 8, 0)
    filled(history, 2)
    assert node.keys() == 2 + 1
    history.close(keep=False)
    assert node.keys() == 0
    node.wait()
    node.crash()
    assert node.history().latest == 0


def test_with_many_versions_the_order_is_that_of_the_numbers():
    node = Node(replace(SETTINGS, history_versions=1_000, history_bytes=10**6))
    node.settings = replace(node.settings, all_history_bytes=10**6)
    node.crash()
    filled(node.history(), 600)
    node.wait()
    node.crash()
    assert kept(node.history()) == list(range(1, 601))


@pytest.mark.parametrize("survive", range(20))
def test_after_a_crash_some_prefix_of_the_writes_is_left(survive):
    """Whatever was told is there, and what is there has no hole."""
    node = Node()
    told: list[int] = []
    history = filled(node.history(), 4)
    node.wait()
    for version in range(5, 12):
        history.append(envelope(version), lambda version=version: told.append(version))
        if version == 7:
            node.wait()
    assert told == [5, 6, 7]
    pending = node.storage.pending
    node.crash(survive)
    again = node.history(epoch=8)
    assert (again.publisher, again.epoch) == (ME, 7)
    versions = kept(again)
    # Every version is written with one that is forgotten behind it.
    assert versions[-1] == 7 + (min(survive, pending) + 1) // 2
    assert len(versions) in (5, 6)
    assert node.shelf.bytes == again.bytes
    assert kept(filled(again, 1)) == list(range(versions[-1] - 3, versions[-1] + 2))


@pytest.mark.parametrize("survive", range(20))
def test_a_crash_while_an_epoch_begins(survive):
    """Either the old one, as far as it was told, or the new one."""
    node = Node()
    history = filled(node.history(), 5)
    node.wait()
    history.begin(SOMEBODY, 8, 0)
    filled(history, 2)
    assert kept(history) == [1, 2]
    pending = node.storage.pending
    assert pending == 5 + 2
    node.crash(survive)
    again = node.history()
    if survive <= 5:
        assert (again.publisher, again.epoch, again.latest) == (ME, 7, 5)
        assert kept(again) == list(range(survive + 1, 6))
    else:
        assert (again.publisher, again.epoch) == (SOMEBODY, 8)
        assert kept(again) == list(range(1, min(survive, 7) - 4))


@pytest.mark.parametrize("survive", range(8))
def test_a_crash_while_a_stream_is_dropped(survive):
    node = Node()
    history = filled(node.history(), 5)
    node.wait()
    history.close(keep=False)
    node.crash(survive)
    again = node.history(epoch=8)
    assert kept(again) == list(range(survive + 1, 6))
    assert (again.epoch, again.latest) == ((7, 5) if survive < 6 else (8, 0))


def test_a_hole_on_the_disk():
    """Nobody makes one; should there be one, what lies before it is no good."""
    node = Node()
    filled(node.history(), 5)
    (key,) = [key for key, _ in node.storage.scan(b"") if key.endswith((3).to_bytes(8))]
    node.storage.write({key: None})
    node.wait()
    node.crash()
    assert kept(node.history()) == [4, 5]


def test_a_publisher_that_may_keep_less_than_before():
    node = Node()
    filled(node.history(ONE), 5)
    filled(node.history(OTHER), 5)
    node.wait()
    node.settings = replace(SETTINGS, history_versions=2, all_history_bytes=40)
    node.crash()
    one, other = node.history(ONE), node.history(OTHER)
    filled(one, 1)
    assert kept(one) == [5, 6]
    assert node.shelf.bytes == one.bytes + other.bytes <= 40
    assert other.latest == 5
    filled(other, 1)
    assert kept(other) == [5, 6]
    node.wait()
    node.crash()
    assert (kept(node.history(ONE)), kept(node.history(OTHER))) == ([5, 6], [5, 6])


def test_a_durable_stream_of_another_publisher():
    """Who comes back under another name begins anew."""
    node = Node()
    filled(node.history(), 3)
    node.wait()
    node.crash()
    history = node.history()
    history.begin(SOMEBODY, 8, 0)
    assert kept(filled(history, 1)) == [1]
    node.wait()
    node.crash()
    again = node.history()
    assert (again.publisher, again.epoch, kept(again)) == (SOMEBODY, 8, [1])
