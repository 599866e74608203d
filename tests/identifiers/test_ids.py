"""ScopeId, RendezvousId and PublisherId as value types."""

import contextlib
import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identifiers import InvalidId, PublisherId, RendezvousId, ScopeId, identify

KINDS = [ScopeId, RendezvousId, PublisherId]
Kind = type[ScopeId] | type[RendezvousId] | type[PublisherId]


@pytest.mark.parametrize("kind", KINDS)
def test_text_form(kind: Kind) -> None:
    raw = bytes(range(kind.SIZE))
    one = kind(raw)
    assert str(one) == raw.hex()
    assert bytes(one) == one.raw == raw
    assert kind.parse(str(one)) == one
    assert repr(one) == f"{kind.__name__}({raw.hex()})"
    assert pickle.loads(pickle.dumps(one)) == one


def test_kinds_never_mix() -> None:
    sid, rid = ScopeId(bytes(32)), RendezvousId(bytes(32))
    assert sid != rid
    assert sid != bytes(32)
    assert len({sid, rid, ScopeId(bytes(32))}) == 2
    assert {sid: 1}.get(rid) is None  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_and_small(kind: Kind) -> None:
    one = kind(bytes(kind.SIZE))
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.raw = b""  # type: ignore[misc]
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 15, 17, 31, 33, 64])
def test_other_sizes_are_refused(kind: Kind, size: int) -> None:
    with pytest.raises(InvalidId, match=f"{kind.SIZE} bytes"):
        kind(bytes(size))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ab",
        "0" * 63,
        "0" * 65,
        "0" * 62 + " 0",
        "0" * 62 + "0x",
        "A" * 64,
        "٠" * 64,
        "0" * 63 + "\n",
    ],
)
def test_what_is_no_scope_id(text: str) -> None:
    with pytest.raises(InvalidId, match="write 64 lower-case hexadecimal digits"):
        ScopeId.parse(text)


@given(st.text(max_size=70) | st.text("0123456789abcdefABCDEF", min_size=60, max_size=66))
def test_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidId):
        assert str(RendezvousId.parse(text)) == text


def test_identify_remembers_but_not_without_bound() -> None:
    assert identify("http://example.com/") is identify("http://example.com/")
    assert identify.cache_info().maxsize is not None
