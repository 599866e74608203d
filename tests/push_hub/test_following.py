"""The ways to follow a topic, as values; and which names of a document are believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identifiers import identify
from push_hub import following as rules
from push_hub.following import Following, Patience, Way, same_document

PATIENCE = Patience(poll_shortest=10, poll_longest=100, confirm=5, ask_again=50, pinged_lately=1000)
NEW = Following(1, Way.LOOKING, 0.0, 0.0)


def ask(now=0.0, record=NEW, hub="http://h/"):
    return rules.asked(now, record, hub, "http://t/", "token", b"secret", PATIENCE)


def test_a_hub_that_confirms_is_asked_again_before_the_lease_ends():
    followed = rules.confirmed(10.0, ask(), 100, PATIENCE)
    assert (followed.way, followed.lease_until, followed.renew_at) == (Way.HUB, 110.0, 90.0)
    renewing = ask(90.0, followed)
    assert (renewing.way, renewing.due, renewing.token) == (Way.HUB, 110.0, "token")


@pytest.mark.parametrize(("told", "lease"), [(None, rules.LEASE), (0, rules.LEASE), (1, 1),
                                             (10**11, rules.LONGEST_LEASE)])  # fmt: skip
def test_leases_are_bounded(told, lease):
    assert rules.confirmed(0.0, ask(), told, PATIENCE).lease_until == lease


def test_a_lease_too_short_to_be_renewed_is_let_go():
    followed = rules.confirmed(0.0, ask(), 5, PATIENCE)
    assert followed.renew_at > followed.lease_until


@pytest.mark.parametrize(
    ("hub", "own"),
    [("https://Hub.example/hub", True), ("http://hub.example/hub", True),
     ("https://hub.example/other", False), ("https://other.example/hub", False)],
)  # fmt: skip
def test_a_topic_that_names_this_hub_is_recognised(hub, own):
    assert rules.is_own(hub, "https://hub.example/hub") is own


def test_a_lease_at_another_hub_is_not_taken_along():
    other = ask(20.0, rules.confirmed(10.0, ask(), 100, PATIENCE), hub="http://other/")
    assert (other.way, other.lease_until) == (Way.ASKED, None)


def test_a_hub_that_fails_is_asked_ever_later():
    record, waits = NEW, []
    for _ in range(4):
        record = rules.polled(0.0, record, "no", PATIENCE, hub_failed=True)
        waits.append(record.ask_after)
    assert waits == [50, 100, 200, 400]
    assert record.way is Way.POLLED
    assert rules.confirmed(0.0, record, None, PATIENCE).failures == 0


def test_polls_become_rarer_without_news_and_more_frequent_with():
    record = rules.polled(0.0, NEW, "it names no hub", PATIENCE)
    assert record.due == 10
    intervals = []
    for _ in range(8):
        record = rules.after_poll(0.0, record, False, PATIENCE)
        intervals.append(record.interval)
    assert intervals[0] == 15
    assert intervals[-1] == 100
    assert rules.after_poll(0.0, record, True, PATIENCE).interval == 50


def test_secrets_are_not_shown():
    assert "secret" not in repr(ask())
    assert "token" not in repr(ask())


def names(topic, *, answered=None, permanent=None, own=None):
    found = same_document(identify(topic), answered or topic, permanent, own)
    return [each.canonical for each in found]


class TestNames:
    """A stranger's claim about somebody else's topic is not believed."""

    def test_a_permanent_redirect_is_believed(self):
        assert names("http://a.example/f", permanent="https://b.example/f") == [
            "https://b.example/f"
        ]

    def test_self_is_believed_within_the_zone(self):
        assert names("http://a.example/f", own="https://www.a.example/f") == [
            "https://www.a.example/f"
        ]

    def test_self_is_not_believed_about_others(self):
        assert names("http://evil.example/f", own="https://victim.example/f") == []

    def test_zones_are_those_of_the_public_suffix_list(self):
        assert names("http://evil.github.io/f", own="http://victim.github.io/f") == []

    def test_self_is_believed_where_the_document_comes_from(self):
        assert names(
            "http://a.example/f", answered="http://feeds.example/1", own="http://feeds.example/x"
        ) == ["http://feeds.example/x"]

    @pytest.mark.parametrize("own", ["", "mailto:a@b.example", "http://", "\0", None])
    def test_nonsense_is_left_out(self, own):
        assert names("http://a.example/f", own=own) == []


@st.composite
def histories(draw):
    """What may happen to a topic, in any order."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(
                    ["look", "ask", "ask other", "confirm", "fail", "poll", "news", "ping"]
                ),
                st.floats(0.01, 1e6),
            ),
            max_size=30,
        )
    )


@given(histories())
def test_whatever_happens_something_is_due_again(events):
    record, now = NEW, 0.0
    for event, later in events:
        now += later
        match event:
            case "look":
                record = rules.looked_at(now, record, PATIENCE)
            case "ask":
                record = ask(now, record)
            case "ask other":
                record = ask(now, record, hub="http://other/")
            case "confirm" if record.way in (Way.ASKED, Way.HUB):
                record = rules.confirmed(now, record, int(later), PATIENCE)
            case "fail":
                record = rules.polled(now, record, "why", PATIENCE, hub_failed=True)
            case "poll" | "news" if record.way is Way.POLLED:
                record = rules.after_poll(now, record, event == "news", PATIENCE)
            case "ping":
                record = rules.pinged(now, record, now + 1000)
        # Never later than the longest wait there is, so that nothing is forgotten.
        assert record.due is not None
        assert record.due <= now + rules.LONGEST_LEASE
        assert (record.lease_until is not None) == (record.way is Way.HUB)
        if record.way is Way.POLLED:
            assert PATIENCE.poll_shortest <= record.interval <= PATIENCE.poll_longest
