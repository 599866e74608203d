"""Topics become ids and come back as the same topics, or not at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from identifiers import Position, PublisherId, identify
from psirp_sim.publications.events import Update
from psph.proxy.mapping import DEFAULT_TYPE, Mapping
from psph.proxy.model import ModelRegistry
from psph.proxy.ports import WebUpdate

TOPIC = identify("http://news.site-b.test/feed")
POSITION = Position(PublisherId(b"p" * 16), 1, 7)
WEB = WebUpdate(TOPIC.canonical, POSITION, "text/html; charset=utf-8", b"\0body", "ab" * 16, True)


@pytest.fixture
def mapping():
    return Mapping(ModelRegistry(), Counter(), accept_unsigned=True)


def publication(update=WEB, **changes):
    metadata = Mapping.describe(update, (1, 2), 7)
    made = Update(TOPIC.sid.raw, TOPIC.rid.raw, POSITION, update.body, metadata, signed=True)
    return replace(made, **changes)


@pytest.mark.parametrize(
    "update",
    [
        WEB,
        replace(WEB, published=False),
        replace(WEB, body=b""),
    ],
)
def test_an_update_crosses_unchanged(mapping, update):
    assert mapping.convert(publication(update)) == update


def test_another_spelling_of_the_topic_is_the_topic(mapping):
    metadata = Mapping.describe(WEB, (1, 2), 7) | {"topic": "HTTP://News.Site-B.test:80/x/../feed"}
    assert mapping.convert(publication(metadata=metadata)) == WEB


@pytest.mark.parametrize(
    ("named", "counted"),
    [
        ("http://news.site-b.test/other", "wrong_topic"),
        ("http://news.site-a.test/feed", "wrong_topic"),
        ("https://news.site-b.test/feed", "wrong_topic"),
        ("", "no_topic"),
        ("not a topic", "no_topic"),
        ("http://", "no_topic"),
        ("http://news.site-b.test/" + "x" * 3_000, "no_topic"),
    ],
)
def test_what_is_not_what_it_says_is_dropped_and_counted(mapping, named, counted):
    assert mapping.convert(publication(metadata={"topic": named})) is None
    assert mapping._counters == {counted: 1}


def test_without_a_topic_it_is_nothing(mapping):
    assert mapping.convert(publication(metadata={})) is None
    assert mapping._counters == {"no_topic": 1}


def test_without_a_type_it_is_bytes(mapping):
    update = mapping.convert(publication(metadata={"topic": TOPIC.canonical}))
    assert update.content_type == DEFAULT_TYPE
    assert (update.trace_id, update.published) == ("", False)


def test_when_it_was_numbered_crosses(mapping):
    update = replace(WEB, recorded_ms=1_700_000_000_123)
    assert mapping.convert(publication(update)).recorded_ms == 1_700_000_000_123
    assert "recorded_ms" not in publication().metadata


@pytest.mark.parametrize("said", ["", "soon", "-1", "1e9", "9" * 18])
def test_what_is_no_time_is_none(mapping, said):
    metadata = {"topic": TOPIC.canonical, "recorded_ms": said}
    assert mapping.convert(publication(metadata=metadata)).recorded_ms == 0


@pytest.mark.parametrize("kind", ["text/html\r\nSet-Cookie: a=b", "t\u00e9xt", "x" * 1_001])
def test_what_is_no_header_becomes_none(mapping, kind):
    metadata = {"topic": TOPIC.canonical, "content-type": kind, "trace_id": "no\r\nid"}
    update = mapping.convert(publication(metadata=metadata))
    assert (update.content_type, update.trace_id) == (DEFAULT_TYPE, "")


@pytest.mark.parametrize(
    "said", ["xmpp:alice@site-b.test?to=bob@site-a.test", "xmpp:a@site-b.test"]
)
def test_what_users_say_is_signed_whatever_is_configured(mapping, said):
    topic = identify(said)
    update = replace(WEB, topic=topic.canonical)
    ids = {"sid": topic.sid.raw, "rid": topic.rid.raw}
    assert mapping.convert(publication(update, signed=False, **ids)) is None
    assert mapping._counters == {"unsigned": 1}
    assert mapping.convert(publication(update, **ids)) == update


def test_unsigned_publications_are_taken_where_that_is_configured(mapping):
    assert mapping.convert(publication(signed=False)) == WEB
    strict = Mapping(ModelRegistry(), Counter(), accept_unsigned=False)
    assert strict.convert(publication(signed=False)) is None
    assert strict.convert(publication()) == WEB


def test_a_topic_is_active_until_everybody_is_done_with_it(mapping):
    first, second = mapping.activate(TOPIC.canonical), mapping.activate(TOPIC.canonical)
    other = mapping.activate("http://blog.site-b.test/")
    assert first == second
    mapping.deactivate(first)
    assert mapping.zone_of(TOPIC.sid.raw) == "site-b.test"
    assert len(mapping.active) == 2
    mapping.deactivate(second)
    assert mapping.zone_of(TOPIC.sid.raw) == "site-b.test", "another topic of the zone is active"
    mapping.deactivate(other)
    assert mapping.zone_of(TOPIC.sid.raw) is None
    assert [mapping.active, mapping._uses, mapping._in_zone, mapping._zones] == [{}] * 4


def test_the_summary_knows_every_active_topic(mapping):
    topics = [mapping.activate(f"http://news.site-b.test/{number}") for number in range(300)]
    assert all(mapping.may_be_active(topic.sid.raw, topic.rid.raw) for topic in topics)
    others = [identify(f"http://news.site-b.test/other/{number}") for number in range(1_000)]
    assert sum(mapping.may_be_active(each.sid.raw, each.rid.raw) for each in others) < 20
    for topic in topics:
        mapping.deactivate(topic)
    assert not mapping.may_be_active(topics[0].sid.raw, topics[0].rid.raw)
