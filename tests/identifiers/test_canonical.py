"""Any text has a canonical form or is refused; and the refusals that a JSON file cannot hold."""

import doctest

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import identifiers
from identifiers import (
    ControlCharacter,
    InvalidTopic,
    TopicTooLong,
    canonical_topic,
    identify,
)

# Pieces that mean something somewhere in a topic, so that random strings reach every rule.
WORDS = (
    "http:// https:// xmpp: mqtt:// HTTP: example.com co.uk localhost a B ü ß é e\u0301 "
    "xn-- bcher-kva . .. / // /. /../ ? ?to= # @ : :80 :443 [ ] [::1] 127.0.0.1 0x7f + \\ & ' "
    "% %41 %2e %2F %c3%bc %ff %00 \u200d \u0660 \u05d0 \uff21 \u3002 \ud800"
)
PIECES = [*WORDS.split(), " ", "\t", "\u00a0"]

ANY_TEXT = st.one_of(
    st.text(alphabet=st.characters(codec=None), max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.text(max_size=20).map("http://{}/".format),
    st.text(max_size=20).map("http://h/{}".format),
    st.text("abcdefghijklmnopqrstuvwxyz0123456789-", max_size=20).map("http://xn--{}.com/".format),
    st.text(max_size=20).map("xmpp:{}@h".format),
    st.text(max_size=20).map("mqtt://h/{}".format),
)


@settings(max_examples=500, deadline=None)
@example("http://example.com/%%34%31")
@example("http://example.com:" + "0" * 5_000 + "80/")
@example("xmpp:" + "a" * 620 + "\u0130" * 200 + "@h")  # grows when mapped
@given(ANY_TEXT)
def test_any_text_has_a_stable_form_or_is_refused(text: str) -> None:
    try:
        topic = identify(text)
    except InvalidTopic:
        return
    assert topic.canonical.isascii()
    assert topic.canonical.isprintable()
    assert " " not in topic.canonical
    assert len(topic.canonical) <= 2_048
    again = identify(topic.canonical)
    assert (again.canonical, again.sid, again.rid) == (topic.canonical, topic.sid, topic.rid)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ControlCharacter, match=r"U\+D800"):
        canonical_topic("http://example.com/\ud800")


def test_a_very_long_spelling_is_refused_at_once() -> None:
    with pytest.raises(TopicTooLong):
        canonical_topic("http://example.com/" + "./" * 5_000)


def test_a_long_spelling_of_a_short_topic_is_fine() -> None:
    assert canonical_topic("http://example.com/" + "./" * 4_000) == "http://example.com/"


def test_the_example_in_the_documentation() -> None:
    assert doctest.testmod(identifiers) == (0, 3)
