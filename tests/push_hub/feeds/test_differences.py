"""Differences: new and changed entries, and nothing for what only looks different."""

from push_hub.feeds import compare, read_feed
from tests.push_hub.feeds.documents import atom


def read(*entries, **options):
    return read_feed("application/atom+xml", atom(*entries, **options))


def known(feed):
    return {entry.key: entry.digest for entry in feed.entries}


def test_everything_is_new_at_first():
    change = compare({}, read(("a", "1"), ("b", "2")))
    assert [entry.key for entry in change.new] == ["urn:a", "urn:b"]
    assert not change.changed


def test_new_and_changed_entries_are_told_apart():
    before = known(read(("a", "1"), ("b", "2")))
    change = compare(before, read(("c", "3"), ("a", "1"), ("b", "TWO")))
    assert [entry.key for entry in change.new] == ["urn:c"]
    assert [entry.key for entry in change.changed] == ["urn:b"]
    assert change


def test_order_title_and_disappearance_are_no_change():
    before = known(read(("a", "1"), ("b", "2")))
    assert not compare(before, read(("b", "2"), ("a", "1"), title="Renamed"))
    assert not compare(before, read(("b", "2")))
