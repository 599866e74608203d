"""What a callback believes: rules, on any input."""

from hypothesis import example, given
from hypothesis import strategies as st

from push_hub.client import callback
from push_hub.client.callback import Confirmed, Denied, Memory, Notification
from push_hub.feeds import read_feed
from push_hub.signatures import ALGORITHMS, signature
from tests.push_hub.feeds.documents import atom

TOPIC = "http://example.com/feed"
FIELDS = ["hub.mode", "hub.topic", "hub.challenge", "hub.lease_seconds", "hub.reason"]

queries = st.dictionaries(
    st.sampled_from(FIELDS),
    st.one_of(st.text(), st.sampled_from([TOPIC, "subscribe", "unsubscribe", "denied", "7"])),
)


@given(queries, st.sampled_from(["subscribe", "unsubscribe", ""]))
@example({"hub.mode": "", "hub.topic": TOPIC, "hub.challenge": "x"}, "")
def test_nothing_is_confirmed_that_is_not_wanted(query, wanted):
    said = callback.read_verification(query, TOPIC, wanted)
    if isinstance(said, Confirmed):
        assert said.mode == wanted == query["hub.mode"]
        assert said.challenge == query["hub.challenge"]
        assert 0 < said.lease_seconds <= callback.MAX_LEASE
    elif isinstance(said, Denied):
        assert query["hub.mode"] == "denied"
        assert said.reason.isprintable()
        assert said.reason


def test_spellings_of_the_topic_are_the_same_topic():
    query = {"hub.mode": "subscribe", "hub.topic": "HTTP://example.com:80", "hub.challenge": "c"}
    said = callback.read_verification(query, "http://example.com/", "subscribe")
    assert said == Confirmed("subscribe", "c", callback.DEFAULT_LEASE)
    assert callback.read_verification(query, "http://example.com/x", "subscribe") is None


@given(st.integers(1, callback.MAX_LEASE), st.floats(0, 1))
def test_renewals_come_before_the_end_with_time_to_try_again(lease, random):
    assert 0.7 * lease <= callback.renew_after(lease, random) <= 0.81 * lease


@given(st.binary(), st.binary(min_size=1), st.one_of(st.none(), st.text()))
def test_only_the_secret_makes_content_believed(content, secret, header):
    right = {signature(secret, content, name) for name in ALGORITHMS}
    believed = callback.authentic(header, secret, content)
    assert believed == (header is not None and header.strip().lower() in right)
    assert all(callback.authentic(each, secret, content) for each in right)
    assert callback.authentic(header, None, content)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(callback, "MAX_KNOWN", 3)
    memory = Memory()
    for n in range(5):
        memory.remember(str(n))
    assert [memory.repeated(str(n)) for n in range(5)] == [False, False, True, True, True]
    assert not memory.repeated(None)
    assert callback.delivery_id("x" * 513) is callback.delivery_id("") is None


def test_entries_are_new_once():
    memory = Memory()

    def titles(*entries):
        body = atom(*entries)
        feed = read_feed("application/atom+xml", body)
        update = memory.notification(TOPIC, "application/atom+xml", body, feed)
        return [entry.title for entry in update.new_entries]

    assert titles(("a", "1")) == ["1"]
    assert titles(("b", "2"), ("a", "1")) == ["2"]
    assert titles(("b", "2 changed"), ("a", "1")) == ["2 changed"]
    assert titles(("b", "2 changed"), ("a", "1")) == []


def test_a_position_is_read_from_our_delivery_ids_only():
    ours = f"{'ab' * 16}.1.7-42"
    assert str(Notification(TOPIC, "", b"", delivery_id=ours).position) == f"{'ab' * 16}.1.7"
    for other in (None, "", "7-42", "x", f"{'ab' * 16}.1.7"):
        assert Notification(TOPIC, "", b"", delivery_id=other).position is None
