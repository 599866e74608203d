"""Which topic a spelling means, and what stands after /t/: any text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from identifiers import InvalidTopic, identify
from push_hub.errors import BadRequest
from push_hub.naming import Naming, topic_of_path

HUB = "https://hub.example/base"
NAMING = Naming(HUB)
FEED = "http://site.example//a%2Fb/?q=1&r=http://x/?y%20#z"

pieces = st.sampled_from(
    [
        "http:", "https:", "HTTP:", "/", "//", "/t/", "t", "hub.example", "HUB.example:443",
        "/base", "site.example", "?", "#", "%2F", "%74", "%", "..", ".", ":80", "@", "[::1]", " ",
        "\n", "\udc80", "é",
    ]
)  # fmt: skip
texts = st.one_of(st.text(), st.lists(pieces, max_size=12).map("".join))


@pytest.mark.parametrize(
    ("rest", "topic"),
    [
        ("http://x/feed", "http://x/feed"),
        ("http:/x/feed", "http://x/feed"),
        ("HTTPS:/x", "HTTPS://x"),
        ("http://x//a%2F%2fb/%7E?q=/t/&r=%3F", "http://x//a%2F%2fb/%7E?q=/t/&r=%3F"),
        ("http://x/?", "http://x/?"),
        ("http://x/http:/y", "http://x/http:/y"),
    ],
)
def test_a_path_is_taken_exactly(rest, topic):
    assert topic_of_path(rest) == topic


@pytest.mark.parametrize("rest", ["", "x", "ftp://x/", "/http://x", "http", "http:x", "mqtt://x/y"])
def test_only_whole_web_addresses_are_topics(rest):
    with pytest.raises(BadRequest, match="after /t/"):
        topic_of_path(rest)


def test_an_address_of_the_hub_means_the_topic_in_it():
    for address in (
        f"{HUB}/t/{FEED}",
        f"http://hub.example/base/t/{FEED}",
        f"HTTPS://Hub.Example:443/base/t/{FEED}",
        f"{HUB}/t/{FEED.replace('://', ':/', 1)}",
    ):
        topic, inner = NAMING.topic(address), identify(FEED)
        assert topic.spelling == address
        assert (topic.sid, topic.rid, topic.zone) == (inner.sid, inner.rid, inner.zone)
        assert topic.canonical == inner.canonical
        assert topic.host == "site.example"
        assert NAMING.plain(topic) == inner


@pytest.mark.parametrize(
    "spelling",
    [
        FEED,
        "https://hub.example/base/feed",
        "https://hub.example/base/t/feed.xml",  # a site of its own beside the hub
        f"https://hub.example/t/{FEED}",
        f"https://hub.example:8443/base/t/{FEED}",
        f"https://other.example/base/t/{FEED}",
    ],
)
def test_all_others_mean_themselves(spelling):
    assert NAMING.topic(spelling) == identify(spelling)
    assert NAMING.plain(identify(spelling)) == identify(spelling)


@pytest.mark.parametrize(
    "spelling",
    [
        f"{HUB}/t/{HUB}/t/{FEED}",
        f"{HUB}/t/http:/hub.example/base/t/{FEED}",
        f"{HUB}/./t/{FEED}",
        f"{HUB}/t/https://hub.example/x/../base/t/{FEED}",
        f"{HUB}/%74/{FEED}",
    ],
)
def test_no_address_leads_back_to_the_hub(spelling):
    with pytest.raises(BadRequest, match="name the topic"):
        NAMING.topic(spelling)


def test_a_hub_without_a_proper_name_has_no_addresses():
    for url in ("", "http://", "http://[::", "unix:/run/hub"):
        assert Naming(url).topic(FEED) == identify(FEED)


@given(texts)
@example(f"{HUB}/t/")
@example(f"{HUB}/t/http://")
def test_whatever_is_named_is_a_topic_or_refused(text):
    for spelling in (text, f"{HUB}/t/{text}"):
        try:
            topic = NAMING.topic(spelling)
        except (InvalidTopic, BadRequest):
            continue
        assert topic.spelling == spelling
        plain = NAMING.plain(topic)
        assert (plain.canonical, plain.rid) == (topic.canonical, topic.rid)
        # It never leads back here, and its own name means the same.
        assert NAMING.topic(plain.spelling) == plain
        assert NAMING.topic(topic.canonical).rid == topic.rid


@given(texts)
def test_a_path_changes_in_nothing_but_a_missing_slash(rest):
    try:
        found = topic_of_path(rest)
    except BadRequest:
        return
    assert found == rest or found.replace("://", ":/", 1) == rest
    assert topic_of_path(found) == found
