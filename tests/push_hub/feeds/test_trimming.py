"""Trimming: known entries go, every other byte stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.feeds import read_feed, trim
from tests.push_hub.feeds.documents import atom, json_feed, rss

KEYS = st.lists(st.integers(0, 20).map(str), unique=True, max_size=8)


@given(KEYS, st.sets(st.integers(0, 20).map(str)), st.sampled_from([atom, rss]))
def test_what_is_left_is_the_feed_of_the_entries_kept(keys, keep, make):
    body = make(*[(key, f"text of {key}") for key in keys])
    feed = read_feed("text/xml", body)
    trimmed = trim(body, feed, {f"urn:{key}" for key in keep})
    expected = [f"urn:{key}" for key in keys if key in keep]
    assert [entry.key for entry in read_feed("text/xml", trimmed).entries] == expected
    if set(keys) <= keep:
        assert trimmed == body


def test_bytes_outside_entries_are_untouched():
    body = atom(("a", "1"), ("b", "2 &amp; ü"), title="Ünï &#x2014; <!-- c -->")
    trimmed = trim(body, read_feed("text/xml", body), {"urn:b"})
    start = body.index(b"<entry>")
    assert trimmed == body[:start] + body[body.index(b"</entry>") + len("</entry>") :]


@pytest.mark.parametrize("broken", [b"</feed", b"</entry>\n<entry>"])
def test_what_cannot_be_cut_with_certainty_is_left_whole(broken):
    body = atom(("a", "1"), ("b", "2")).replace(broken, b"", 1)
    feed = read_feed("text/xml", body)
    if feed is not None and trim(body, feed, set()) != body:
        assert len(feed.entries) == body.count(b"<entry>")


def test_json_is_left_whole():
    body = json_feed(("a", "1"))
    assert trim(body, read_feed("application/json", body), set()) == body
