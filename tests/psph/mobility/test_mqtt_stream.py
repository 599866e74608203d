"""A publisher that moves faster than the bridge: its messages still come in order."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId
from mobility import Message
from psph.mobility.mqtt_stream import MOST, Stream

PUBLISHER = PublisherId(bytes(16))


class Clock:
    """Runs what is due when it is told to."""

    def __init__(self):
        self.due = []

    def call_later(self, delay, callback):
        self.due.append(callback)

    def ring(self):
        due, self.due = self.due, []
        for callback in due:
            callback()


def at(version, epoch=1):
    return Position(PUBLISHER, epoch, version)


def stream():
    clock, came = Clock(), []
    found = Stream(SimpleNamespace(call_later=clock.call_later), lambda p, m: came.append(p))
    return found, clock, came


@given(st.permutations(range(2, 9)))
def test_whatever_the_order_all_pass_in_theirs(versions):
    found, clock, came = stream()
    found.note(at(1))
    for version in versions:
        found.offer(at(version), Message(b""))
    assert came == [at(version) for version in range(2, 9)]
    clock.ring()
    assert len(came) == 7


def test_what_waits_in_vain_passes_after_a_while():
    found, clock, came = stream()
    for version in (1, 5, 4):
        found.offer(at(version), Message(b""))
    found.offer(at(1, epoch=2), Message(b""))
    assert came == [at(1)]
    clock.ring()
    assert came == [at(1), at(4), at(5), at(1, epoch=2)]
    assert found.last == at(1, epoch=2)


def test_no_more_wait_than_there_is_room_for():
    found, _, came = stream()
    found.note(at(1))
    for version in range(3, 4 + MOST):
        found.offer(at(version), Message(b""))
    assert len(came) == MOST + 1
    found.offer(at(2), Message(b""))
    assert came[-1] == at(2)  # whoever has it already knows by its number
