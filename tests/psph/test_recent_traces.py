"""The last trace events in memory: numbers, bounds, and what JSON has of them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from psph.trace_writer import BothSinks, RecentEvents
from psph.trace_writer.recent import AT_ONCE
from traces import MemorySink, Stage, TraceEvent


def event(number, stage=Stage.PING_RECEIVED, **more):
    return TraceEvent(
        stage=stage, node="n1", domain="a.test", wall_ns=number, mono_ns=number, **more
    )


def numbers(answer):
    return [each["wall_ns"] for each in answer["events"]]


@given(st.integers(1, 20), st.lists(st.booleans(), max_size=60))
def test_a_reader_gets_every_event_once_or_is_told_how_many_are_gone(kept, steps):
    recent, emitted, read, lost, after = RecentEvents(kept), 0, [], 0, 0
    for emit in [*steps, False]:
        if emit:
            emitted += 1
            recent.emit(event(emitted))
        else:
            answer = recent.after(after)
            after, lost = answer["next"], lost + answer["lost"]
            read += numbers(answer)
    assert len(read) + lost == emitted
    assert read == sorted(set(read))
    assert after == emitted
    assert recent.after(after)["events"] == []


def test_one_answer_has_bounds():
    recent = RecentEvents(3 * AT_ONCE)
    for number in range(1, 2 * AT_ONCE + 1):
        recent.emit(event(number))
    first = recent.after(0)
    assert len(first["events"]) == AT_ONCE
    assert numbers(recent.after(first["next"])) == list(range(AT_ONCE + 1, 2 * AT_ONCE + 1))


def test_a_number_of_an_earlier_life_gets_everything():
    recent = RecentEvents(10)
    recent.emit(event(1))
    assert numbers(recent.after(1_000)) == [1]


def test_clock_probes_are_left_out():
    recent = RecentEvents(10)
    recent.emit(event(1, Stage.CLOCK_PROBE, peer="n2", t1=1, t2=2, t3=3, t4=4))
    recent.emit(event(2))
    assert numbers(recent.after(0)) == [2]


def test_ids_are_hexadecimal_and_what_is_missing_is_left_out():
    recent = RecentEvents(10)
    recent.emit(event(1, Stage.DELIVERED, sid=bytes(32), version=7, trace_id="ab" * 16))
    (shown,) = json.loads(json.dumps(recent.after(0)))["events"]
    assert shown == {
        "stage": "delivered", "node": "n1", "domain": "a.test", "wall_ns": 1, "mono_ns": 1,
        "sid": "00" * 32, "version": 7, "trace_id": "ab" * 16,
    }  # fmt: skip


def test_two_sinks_get_the_same():
    first, second = MemorySink(), MemorySink()
    both = BothSinks(first, second)
    both.emit(event(1))
    assert first.events == second.events == [event(1)]
