"""The event and its id."""

import gc

import pytest

from traces import InvalidTraceId, Stage, TraceEvent, new_trace_id


def test_needs_only_what_every_event_has() -> None:
    event = TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", wall_ns=2, mono_ns=1)
    given = {"stage", "node", "domain", "wall_ns", "mono_ns"}
    for field in TraceEvent.__struct_fields__:
        assert (getattr(event, field) is None) == (field not in given)


def test_cannot_be_changed() -> None:
    event = TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", wall_ns=2, mono_ns=1)
    with pytest.raises(AttributeError):
        event.node = "n2"  # type: ignore[misc]


def test_is_no_burden_to_the_garbage_collector() -> None:
    event = TraceEvent(stage=Stage.DROPPED, node="n1", domain="a.test", wall_ns=2, mono_ns=1)
    assert not gc.is_tracked(event)


def test_trace_id_is_the_callers_randomness_in_hex() -> None:
    assert new_trace_id(bytes(range(16))) == "000102030405060708090a0b0c0d0e0f"


@pytest.mark.parametrize("length", [0, 15, 17, 32])
def test_trace_id_wants_16_bytes(length: int) -> None:
    with pytest.raises(InvalidTraceId, match=f"16 random bytes, not {length}"):
        new_trace_id(bytes(length))
