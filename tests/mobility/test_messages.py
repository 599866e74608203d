"""What clients and proxies say is read whole or not at all, whoever wrote it."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mobility.messages import (
    LARGEST,
    Alive,
    Arrived,
    Batch,
    Code,
    Fetch,
    Heard,
    Item,
    MalformedMessage,
    MovedOut,
    MoveIn,
    MoveOut,
    Refused,
    Release,
    Released,
    State,
    Welcome,
    encode,
    is_json,
    read,
)
from mobility.service import Quota, Sacrifice, Service
from tests.mobility.world import World

PLACE = "ab" * 16 + ".1.7"
WHO = {"secret": b"s" * 32, "epoch": 3, "nonce": 4, "call": 5}
TOPICS = {"news": (PLACE,), "never": None}
EXAMPLES = [
    MoveIn(
        **WHO,
        topics=TOPICS,
        service=Service(keep=5.0, topic=Quota(1, 2), first=Sacrifice.TOPIC, exclude=("a*",)),
        alive=2.0,
    ),
    Alive(**WHO, topics=TOPICS, gone={"old": 3}),
    Arrived(**WHO, bytes=9, peer="a", reason="quota"),
    MoveOut(**WHO, topics=TOPICS),
    Fetch(**WHO, proxy="a", stay=2, life=8, after=6, most=100, stop=True),
    Release(**WHO, proxy="a", stay=2),
    Welcome(call=5, service=Service(), report=True),
    Heard(call=5),
    MovedOut(call=5),
    Batch(
        call=5,
        state=State.KEPT,
        life=8,
        last=7,
        items=(Item("news", PLACE, b"\x00\xff", "kind"), Item("news", None, None)),
        more=True,
        seen=TOPICS,
        dropped={"news": 3},
    ),
    Released(call=5),
    Refused(call=5, code=Code.SUPERSEDED, epoch=9, nonce=1),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("as_json", [False, True])
def test_messages_come_back(message, as_json):
    content = encode(message, json=as_json)
    assert is_json(content) == as_json
    assert read(content) == message


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=40)
    | st.sampled_from([PLACE, b"s" * 32, "c3Nz", PLACE + "\n", "kept", 1, 5])
)
names = st.sampled_from(
    ["type", "v", "secret", "epoch", "nonce", "call", "topics", "proxy", "stay", "items", "state"]
)
kinds = st.sampled_from(
    ["move_in", "alive", "arrived", "move_out", "fetch", "release", "batch", "refused", "welcome"]
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
objects = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    kinds,
    st.dictionaries(names, values, max_size=8),
)


@given(st.binary(max_size=300) | objects.map(msgspec.msgpack.encode))
def test_any_bytes_are_a_message_or_malformed(content):
    try:
        message = read(content)
    except MalformedMessage:
        return
    assert read(encode(message)) == message
    assert read(encode(message, json=True)) == message


@given(st.sampled_from(EXAMPLES), st.booleans(), st.data())
def test_damaged_messages_are_read_or_malformed(message, as_json, data):
    content = bytearray(encode(message, json=as_json))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        read(bytes(content))


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"secret": "c2hvcnQ="},
        {"epoch": -1},
        {"epoch": 1 << 63},
        {"type": "batch"},
        {"type": "unknown"},
        {"topics": {"news": ["not a position"]}},
        {"topics": {"": []}},
        {"topics": {"n" * 2_049: []}},
        {"topics": {"news": [PLACE] * 65}},
        {"alive": 0},
        {"service": {"keep": -1}},
        {"service": {"mode": "magic"}},
    ],
    ids=str,
)
def test_what_is_not_allowed(changes):
    written = json.loads(encode(EXAMPLES[0], json=True))
    assert read(json.dumps(written).encode())
    with pytest.raises(MalformedMessage):
        read(json.dumps({**written, **changes}).encode())


def test_too_large_is_not_looked_at():
    with pytest.raises(MalformedMessage, match="too many"):
        read(b"{" * (LARGEST + 1))


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=60) | objects.map(msgspec.msgpack.encode), max_size=5))
def test_a_core_bears_whatever_it_receives(packets):
    world = World(proxies="a")
    client = world.add()
    world.arrive("a")
    for packet in packets:
        world.proxy("a").receive("client", packet)
        client.receive("a", packet)
    world.run(100)
    world.publish(2)
    world.run(50)
    assert world.versions() == [1, 2]
