"""What proxies say to each other is read whole or not at all, whoever wrote it."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mobility import messages
from mobility.ahead import AheadSettings
from mobility.ahead.words import (
    MOST_CHANGES,
    PASS_BYTES,
    Came,
    Contexts,
    Copy,
    Drop,
    Greet,
    Held,
    Mark,
    Noted,
    Pass,
    Rejected,
    encode,
    read,
)
from mobility.messages import LARGEST, MalformedMessage
from mobility.service import Quota, Service
from tests.mobility.world import World

PLACE = "ab" * 16 + ".1.7"
TOKEN = b"t" * PASS_BYTES
WHO = {"client": "cd" * 32, "epoch": 3, "nonce": 4, "serial": 5}
COPY = Copy(
    **WHO,
    topics={"news": (PLACE,), "never": None},
    service=Service(keep=5.0, topic=Quota(1, 2)),
    active=True,
)
CHANGES = (COPY, Mark(**WHO), Drop(**WHO), Came(**WHO, directly=False))
EXAMPLES = [
    Greet(call=1, proxy="b", challenge=TOKEN),
    Pass(call=1, proxy="b", challenge=TOKEN, token=TOKEN),
    Contexts(call=1, proxy="b", token=TOKEN, changes=CHANGES, neighbours=("a", "c")),
    Noted(call=1),
    Rejected(call=1),
    Held(call=1, lacking=("cd" * 32,), refused=("ef" * 32,), neighbours=("a",)),
]


@pytest.mark.parametrize("word", EXAMPLES, ids=lambda each: type(each).__name__)
def test_words_come_back(word):
    assert read(encode(word)) == word


@pytest.mark.parametrize("word", EXAMPLES, ids=lambda each: type(each).__name__)
def test_words_are_no_messages_of_clients(word):
    with pytest.raises(MalformedMessage):
        messages.read(encode(word))


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text(max_size=9)
    | st.binary(max_size=20)
    | st.sampled_from([PLACE, TOKEN, "cd" * 32, "cd" * 32 + "\n", "copy", "drop", 1])
)
names = st.sampled_from(
    ["type", "kind", "v", "call", "proxy", "token", "challenge", "changes", "client", "epoch",
     "nonce", "serial", "topics", "active", "neighbours", "lacking"]
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=6),
    max_leaves=10,
)
objects = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(["greet", "pass", "contexts", "noted", "rejected", "held"]),
    st.dictionaries(names, values, max_size=8),
)


@given(st.binary(max_size=300) | objects.map(msgspec.msgpack.encode))
def test_any_bytes_are_a_word_or_malformed(content):
    try:
        word = read(content)
    except MalformedMessage:
        return
    assert read(encode(word)) == word


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_words_are_read_or_malformed(word, data):
    content = bytearray(encode(word))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        read(bytes(content))


def _written(changes, **others):
    base = {"type": "contexts", "call": 1, "proxy": "b", "token": TOKEN}
    return msgspec.msgpack.encode({**base, **others, "changes": changes})


GOOD = {"kind": "copy", "client": "cd" * 32, "epoch": 1, "nonce": 1, "topics": {"news": [PLACE]}}


@pytest.mark.parametrize(
    "content",
    [
        _written([{**GOOD, "client": "CD" * 32}]),
        _written([{**GOOD, "client": "cd" * 32 + "\n"}]),
        _written([{**GOOD, "epoch": -1}]),
        _written([{**GOOD, "topics": {"news": ["not a position"]}}]),
        _written([{**GOOD, "topics": {"n" * 2_049: None}}]),
        _written([{**GOOD, "kind": "steal"}]),
        _written([GOOD] * (MOST_CHANGES + 1)),
        _written([GOOD], token=b"short"),
        _written([GOOD], proxy=""),
        _written([GOOD], v=2),
        _written([GOOD], neighbours=["a"] * 65),
    ],
)
def test_what_is_not_allowed(content):
    assert read(_written([GOOD]))
    with pytest.raises(MalformedMessage):
        read(content)


def test_too_large_is_not_looked_at():
    with pytest.raises(MalformedMessage, match="too many"):
        read(b"\x80" * (LARGEST + 1))


changes = st.lists(
    st.builds(
        lambda kind, epoch, serial, active: (
            Copy(**{**WHO, "epoch": epoch, "serial": serial}, topics={"news": None}, active=active)
            if kind is Copy
            else kind(**{**WHO, "epoch": epoch, "serial": serial})
        ),
        st.sampled_from([Copy, Mark, Drop, Came]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(changes | st.binary(max_size=60) | objects.map(msgspec.msgpack.encode), max_size=5))
def test_a_core_bears_whatever_it_receives(said):
    world = World(proxies="ab", ahead=AheadSettings(on=True))
    world.add()
    world.arrive("a")
    proxy = world.proxy("a")
    token = proxy.ahead.conversation.passes.give("b")
    for each in said:
        if isinstance(each, list):
            word = Contexts(call=1, proxy="b", token=token, changes=tuple(each))
            each = encode(word)
        proxy.receive("b", each)
    world.run(100)
    world.publish(2)
    world.run(50)
    assert world.versions() == [1, 2]
    for context in proxy.ahead.contexts.kept.values():
        assert context.copy.client == WHO["client"]
