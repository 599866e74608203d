"""Topics made from JIDs. The rules for JIDs in URLs are in the vectors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identifiers import (
    InvalidHost,
    InvalidJid,
    InvalidTopic,
    TopicTooLong,
    canonical_topic,
    conversation_topic,
    identify,
    jid_topic,
)


def test_a_jid_as_people_write_it() -> None:
    assert jid_topic("Alice@Example.com") == "xmpp:alice@example.com"
    assert jid_topic("jürgen@bücher.example") == "xmpp:j%C3%BCrgen@xn--bcher-kva.example"


def test_a_plain_jid_is_not_percent_decoded() -> None:
    assert jid_topic("a%41@example.com") == "xmpp:a%2541@example.com"
    assert canonical_topic("xmpp:a%2541@example.com") == "xmpp:a%2541@example.com"


def test_a_conversation_has_two_directions() -> None:
    there = conversation_topic("alice@a.example", "bob@b.example")
    back = conversation_topic("bob@b.example", "alice@a.example")
    assert there == "xmpp:alice@a.example?to=bob@b.example"
    assert identify(there).zone == "a.example"
    assert identify(back).zone == "b.example"


@pytest.mark.parametrize(
    "jid", ["", "alice", "@a", "alice@", "alice@a/phone", "al ice@a", "a\ud800@a"]
)
def test_what_is_no_bare_jid(jid: str) -> None:
    with pytest.raises(InvalidJid):
        jid_topic(jid)
    with pytest.raises(InvalidJid):
        conversation_topic("alice@example.com", jid)


def test_the_host_of_a_jid_is_a_host() -> None:
    with pytest.raises(InvalidHost):
        jid_topic("alice@a:5222")


def test_a_jid_too_long_for_a_topic() -> None:
    with pytest.raises(TopicTooLong):
        jid_topic("ü" * 500 + "@example.com")


@pytest.mark.parametrize(
    ("local", "why"),
    [
        ("a\u0640", "tatweel is an exception (RFC 5892)"),
        ("\u1100", "a conjoining jamo that forms no syllable"),
        ("a\ufe00", "a variation selector is invisible"),
        ("a\u200db", "a joiner that joins nothing"),
        ("\u30fb", "a middle dot outside Japanese text"),
        ("\u0660\u06f0", "digits of two systems"),
        ("a\u2028", "a separator"),
        ("\u0378", "an unassigned code point"),
    ],
)
def test_characters_that_user_names_may_not_hold(local: str, why: str) -> None:
    with pytest.raises(InvalidJid):
        jid_topic(f"{local}@example.com")


@pytest.mark.parametrize(
    ("local", "normal"),
    [
        ("l\u00b7l", "l\u00b7l"),  # Catalan, allowed between two l
        ("\u30a2\u30fb\u30a2", "\u30a2\u30fb\u30a2"),
        ("\uff76\uff9e", "\u30ac"),  # half-width ka and voiced mark, then composed
        ("\u1112\u1161\u11ab", "\ud55c"),  # jamo that form a syllable
        ("\u05d0\u05d1", "\u05d0\u05d1"),
        ("\u212a", "k"),  # Kelvin sign
        ("\u3007", "\u3007"),  # an exception (RFC 5892)
    ],
)
def test_characters_that_user_names_may_hold(local: str, normal: str) -> None:
    assert jid_topic(f"{local}@example.com") == canonical_topic(f"xmpp:{normal}@example.com")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_two_texts_are_a_conversation_or_refused(one: str, other: str) -> None:
    try:
        topic = conversation_topic(f"{one}@example.com", f"{other}@example.org")
    except InvalidTopic:
        return
    assert canonical_topic(topic) == topic
