"""Server-Sent Events, written and read: whatever way the bytes are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId
from push_hub.event_stream import (
    HEARTBEAT,
    RETRY,
    BadEvent,
    EventReader,
    ReadEvent,
    caught_up_event,
    notice_event,
    update_event,
)
from push_hub.store.records import Origin, Update

POSITION = Position(PublisherId(b"p" * 16), 1, 2)


def read(*chunks, **options):
    reader = EventReader(**options)
    return [event for chunk in chunks for event in reader.feed(chunk)]


@given(st.text(), st.binary(), st.one_of(st.none(), st.just('[{"id": "a"}]')), st.booleans())
def test_what_is_written_is_read(content_type, body, entries, whole):
    update = Update(
        7, 1, "http://e.example/", POSITION, "ab" * 16, Origin.FETCHED, content_type, body,
        entries, 0.0,
    )  # fmt: skip
    (event,) = read(update_event(update, "http://E.example/", whole).data)
    data = json.loads(event.data)
    assert (event.kind, data["topic"], data["content_type"]) == (
        "message", "http://E.example/", content_type,
    )  # fmt: skip
    assert ("entries" in data) is (entries is not None and not whole)


def test_notices_and_comments_are_told_apart():
    stream = RETRY + HEARTBEAT + notice_event("gap", "t", POSITION, POSITION.next()).data
    stream += caught_up_event().data
    heartbeat, gap, comment = read(stream)
    assert heartbeat == ReadEvent("", "still here")
    assert (gap.kind, json.loads(gap.data)["resumes"]) == ("gap", str(POSITION.next()))
    assert comment == ReadEvent("", "caught up")


LINES = st.lists(
    st.sampled_from(
        [b"data: a", b"data:b", b"event: gap", b"id: 1", b": note", b"", b"strange", b"data"]
    )
)


@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 200)))
def test_cuts_change_nothing(lines, end, cuts):
    stream = b"".join(line + end for line in lines)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[a:b] for a, b in pairwise(places)]
    assert read(*chunks) == read(b"".join(line + b"\n" for line in lines))


@given(st.lists(st.binary()))
def test_anything_may_arrive(chunks):
    assert all(isinstance(each, ReadEvent) for each in read(*chunks))


@pytest.mark.parametrize("chunk", [b"data: " + b"a" * 50, b"data: a\n" * 20, b"x: y\n"])
def test_an_event_without_end_is_refused(chunk):
    with pytest.raises(BadEvent):
        read(*[chunk] * 100, max_event=200)


def test_small_events_never_add_up():
    assert len(read(*[b"data: a\n\n: b\n"] * 1_000, max_event=200)) == 2_000
