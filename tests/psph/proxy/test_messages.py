"""What proxies say to each other is read whole or not at all, whoever wrote it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psph.proxy.messages import (
    LARGEST,
    LONGEST_LEASE,
    LONGEST_TOPIC,
    MOST_TOPICS,
    Answer,
    Answers,
    MalformedMessage,
    Requests,
    encode,
    read_answers,
    read_requests,
)

REPLY = "ab" * 32
PUBLISHER = "cd" * 16
REQUESTS = {"reply": REPLY, "lease": 60.0, "topics": {"http://news.site-b.test/feed": 1}}

topics = st.text(st.characters(codec="utf-8"), max_size=40)
leaves = st.none() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(
    [REPLY, PUBLISHER, REPLY + "\n", "\n", "refused", 60.0]
)  # fmt: skip
keys = st.sampled_from(
    ["reply", "lease", "topics", "answers", "publisher", "refused", "asked", "x"]
)
inner = st.dictionaries(keys, leaves, max_size=3)
values = leaves | st.lists(leaves, max_size=3) | inner | st.dictionaries(keys, inner, max_size=2)
objects = st.dictionaries(keys, values, max_size=4)
contents = st.binary(max_size=200) | objects.map(lambda each: json.dumps(each).encode())


@given(
    st.dictionaries(topics, st.integers(0, (1 << 63) - 1), max_size=5),
    st.floats(0.001, LONGEST_LEASE),
)
def test_requests_come_back(wanted, lease):
    requests = Requests(REPLY, lease, wanted)
    assert read_requests(encode(requests)) == requests


@given(st.dictionaries(topics, st.sampled_from([Answer(1, PUBLISHER), Answer(2, refused="no")])))
def test_answers_come_back(answers):
    assert read_answers(encode(Answers(answers))) == Answers(answers)


@given(contents)
def test_any_bytes_are_requests_or_malformed(content):
    try:
        requests = read_requests(content)
    except MalformedMessage:
        return
    assert len(requests.reply) == 64
    assert len(bytes.fromhex(requests.reply)) == 32
    assert 0 < requests.lease <= LONGEST_LEASE
    assert all(isinstance(topic, str) for topic in requests.topics)


@given(contents)
def test_any_bytes_are_answers_or_malformed(content):
    try:
        answers = read_answers(content).answers
    except MalformedMessage:
        return
    for answer in answers.values():
        assert len(answer.publisher) in (0, 32)
        assert len(bytes.fromhex(answer.publisher)) in (0, 16)


@pytest.mark.parametrize(
    "changes",
    [
        {"reply": REPLY[:-1]},
        {"reply": REPLY.upper()},
        {"reply": REPLY + "\n"},
        {"reply": " " + REPLY[1:]},
        {"reply": None},
        {"lease": 0},
        {"lease": -1},
        {"lease": LONGEST_LEASE + 1},
        {"lease": 1e400},
        {"lease": "60"},
        {"topics": "http://news.site-b.test/feed"},
        {"topics": ["http://news.site-b.test/feed"]},
        {"topics": {"http://news.site-b.test/feed": "1"}},
        {"topics": {"http://news.site-b.test/feed": -1}},
        {"topics": {"http://news.site-b.test/feed": 1 << 63}},
        {"topics": {"x" * (LONGEST_TOPIC + 1): 1}},
        {"topics": dict.fromkeys(map(str, range(MOST_TOPICS + 1)), 1)},
    ],
)
def test_malformed_requests(changes):
    assert read_requests(json.dumps(REQUESTS).encode())
    with pytest.raises(MalformedMessage):
        read_requests(json.dumps(REQUESTS | changes).encode())


@pytest.mark.parametrize(
    "answer", [{"publisher": "\n"}, {"publisher": "cd"}, {"refused": "x" * 201}, {"refused": 1}, 1]
)
def test_malformed_answers(answer):
    with pytest.raises(MalformedMessage):
        read_answers(json.dumps({"answers": {"http://news.site-b.test/": answer}}).encode())


def test_nobody_can_send_too_much():
    with pytest.raises(MalformedMessage, match="too many"):
        read_requests(b" " * (LARGEST + 1))
    with pytest.raises(MalformedMessage):
        read_requests(b"[" * 100_000)
    with pytest.raises(MalformedMessage):
        read_answers(b'{"answers":' * 10_000)
