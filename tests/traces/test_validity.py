"""`check` accepts what the table of stages asks for, and nothing less."""

from typing import Any

import msgspec
import pytest

from identifiers import PublisherId, RendezvousId, ScopeId
from traces import STAGES, InvalidTraceEvent, Stage, TraceEvent, check

FULL: dict[str, Any] = {
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "sid": b"s" * ScopeId.SIZE,
    "rid": b"r" * RendezvousId.SIZE,
    "topic": "https://news.a.test/feed.xml",
    "publisher": b"p" * PublisherId.SIZE,
    "epoch": 1,
    "version": 7,
    "node": "n1",
    "domain": "a.test",
    "subscriber": "https://reader.b.test/callback",
    "peer": "n2",
    "wall_ns": 1_800_000_000_000_000_000,
    "mono_ns": 5,
    "t1": 1,
    "t2": 2,
    "t3": 3,
    "t4": 4,
    "bytes": 300,
    "reason": "timeout",
}


REQUIRED = [(stage, name) for stage, rule in STAGES.items() for name in sorted(rule.requires)]


@pytest.mark.parametrize("stage", Stage)
def test_accepts_what_the_stage_requires_and_no_more(stage: Stage) -> None:
    check(TraceEvent(stage=stage, **FULL))
    rule = STAGES[stage]
    always = {"node", "domain", "wall_ns", "mono_ns"}
    least = always | rule.requires | rule.unless_reason
    check(TraceEvent(stage=stage, **{name: FULL[name] for name in least}))


@pytest.mark.parametrize(("stage", "column"), REQUIRED)
def test_refuses_an_event_without_a_required_column(stage: Stage, column: str) -> None:
    event = TraceEvent(stage=stage, **{**FULL, column: None})
    with pytest.raises(InvalidTraceEvent, match=f"{stage} event without {column}"):
        check(event)


def test_a_fetch_without_position_says_why() -> None:
    fetched = TraceEvent(
        stage=Stage.FETCHED,
        trace_id=FULL["trace_id"],
        topic=FULL["topic"],
        node="n1",
        domain="a.test",
        wall_ns=1,
        mono_ns=1,
        reason="unchanged",
    )
    check(fetched)
    with pytest.raises(InvalidTraceEvent, match="without publisher, epoch, version, bytes"):
        check(msgspec.structs.replace(fetched, reason=None))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("trace_id", "0AF7651916CD43DD8448EB211C80319C"),
        ("trace_id", "0af7651916cd43dd8448eb211c80319c\n"),
        ("trace_id", b"0af7651916cd43dd8448eb211c80319c"),
        ("sid", b"s" * 31),
        ("rid", "r" * 32),
        ("rid", "r" * 44),  # would be base64 of 33 bytes
        ("topic", ""),
        ("publisher", b""),
        ("epoch", -1),
        ("epoch", 2**63),
        ("version", 0),
        ("version", "7"),
        ("stage", "vanished"),
        ("node", None),
        ("domain", ""),
        ("wall_ns", 1.5),
        ("mono_ns", None),
        ("t3", -1),
        ("bytes", -1),
        ("reason", 404),
    ],
)
def test_refuses_a_value_that_is_not_of_its_column(column: str, value: object) -> None:
    event = TraceEvent(**{"stage": Stage.PUSHED, **FULL, column: value})
    with pytest.raises(InvalidTraceEvent, match=column):
        check(event)
