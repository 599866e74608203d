"""The documents, tokens, places and lines of chat, by example and by chance."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from contextlib import suppress

import feedparser
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId
from psph.chat import message, presence, showing
from psph.chat.conversation import Seen, buddies_of, directions, places_text, read_places
from psph.chat.events import NotSent, Said, of_server
from psph.chat.message import BadMessage, Message, TooLong, normal_jid
from psph.chat.presence import MOST_SAYING, Presence, Sightings
from psph.chat.sse import EventReader, ServerEvent
from psph.chat.tokens import is_token_of, token_of

ALICE, BOB = "alice@site-a.test", "bob@site-b.test"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

jids = st.sampled_from([ALICE, BOB, "élodie@site-a.test", "a%b@site-a.test"])
positions = st.builds(
    Position,
    st.binary(min_size=16, max_size=16).map(PublisherId),
    st.integers(0, 2**64 - 1),
    st.integers(1, 2**64 - 1),
)


# Messages


def test_a_message_is_the_document_of_figure_38():
    document = message.write(Message("alice@ericsson.com", "Hi <Bob> & all"))
    assert document.decode() == (
        "<?xml version='1.0' encoding='utf-8'?>\n"
        '<rss xmlns:dc="http://purl.org/dc/elements/1.1/" version="2.0"><channel>'
        "<title>New message from:</title><link>http://ericsson.com/alice</link>"
        "<description>Hi &lt;Bob&gt; &amp; all</description>"
        "<dc:creator>alice@ericsson.com</dc:creator></channel></rss>"
    )
    read = feedparser.parse(document)
    assert not read.bozo
    assert (read.feed.author, read.feed.link) == (
        "alice@ericsson.com", "http://ericsson.com/alice",
    )  # fmt: skip


@given(jids, st.text(max_size=300))
def test_what_is_written_is_read(sender, text):
    try:
        cleaned = message.clean(text)
    except BadMessage:
        assert not re.sub(r"\s", "", text)
        return
    wrote = Message(normal_jid(sender), cleaned)
    assert message.read(message.write(wrote)) == wrote
    assert message.clean(cleaned) == cleaned


@given(st.text(max_size=300))
def test_what_is_cleaned_is_whole_but_for_what_xml_cannot_carry(text):
    printable = "".join(each for each in text if each.isprintable()).strip()
    if printable:
        assert message.clean(printable) == printable


@given(
    st.binary(max_size=400)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
def test_whatever_somebody_sends_is_a_message_or_refused(content):
    for read in (message.read, presence.read):
        for document in (content, b"<rss><channel>" + content + b"</channel></rss>"):
            with suppress(BadMessage):
                assert read(document)


ENTITIES = b"""<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>
<rss><channel><description>&b;</description></channel></rss>"""
CREATOR = "<dc:creator xmlns:dc='http://purl.org/dc/elements/1.1/'>%s</dc:creator>"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "not XML"),
        (ENTITIES, "declares nothing"),
        (ENTITIES.decode().encode("utf-16"), "UTF-8"),
        (b"<rss/>", "no channel"),
        (b"<rss><channel/></rss>", "not complete"),
        ((f"<rss><channel>{CREATOR % ALICE}</channel></rss>").encode(), "says something"),
        (b"x" * (message.LARGEST + 1), "at most"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(document, reason):
    with pytest.raises(BadMessage, match=reason):
        message.read(document)


def test_a_text_is_bounded():
    assert len(message.clean("x" * message.LONGEST)) == message.LONGEST
    for text in ("x" * (message.LONGEST + 1), "x" * 10_000_000):
        with pytest.raises(TooLong, match="at most"):
            message.clean(text)
    largest = message.write(Message(ALICE, "&" * message.LONGEST))
    assert message.read(largest).text == "&" * message.LONGEST
    assert len(message.write(Message(ALICE, "\U0001f600" * message.LONGEST))) <= message.LARGEST


@pytest.mark.parametrize(
    ("spelled", "normal"),
    [
        ("Alice@Site-A.test", ALICE),
        ("élodie@site-a.test", "élodie@site-a.test"),
        ("a%b@x.test", "a%b@x.test"),
    ],
)
def test_a_jid_has_one_normal_form(spelled, normal):
    assert normal_jid(spelled) == normal
    assert normal_jid(normal) == normal


# Presence


@given(jids, st.booleans(), st.floats(2 * presence.SHORTEST, presence.LONGEST))
def test_a_presence_that_is_written_is_read(jid, here, ttl):
    found = presence.read(presence.write(Presence(normal_jid(jid), here, ttl)))
    assert (found.jid, found.here) == (normal_jid(jid), here)
    assert found.ttl == pytest.approx(ttl, rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("ttl", ["-1", "nan", "inf", "1e9", "soon", "0"])
def test_a_word_holds_for_a_time_that_is_one(ttl):
    document = presence.write(Presence(ALICE, True, 60)).replace(
        b"<ttl>1<", f"<ttl>{ttl}<".encode()
    )
    with pytest.raises(BadMessage, match="ttl"):
        presence.read(document)


def test_ttl_is_in_minutes_as_rss_has_it():
    document = presence.write(Presence(ALICE, True, 90))
    assert ElementTree.fromstring(document).findtext("channel/ttl") == "1.5"


PSPH, OTHER = PublisherId(b"1" * 16), PublisherId(b"2" * 16)
HERE, AWAY = Presence(ALICE, True, 10), Presence(ALICE, False, 10)


def test_somebody_is_here_until_a_psph_says_otherwise_or_nothing():
    seen = Sightings()
    assert (seen.known.state, seen.known.since, seen.next) == ("away", None, None)
    assert seen.heard(HERE, PSPH, 100, 100)
    assert (seen.known.here, seen.known.since, seen.next) == (True, 100, 110)
    assert not seen.heard(HERE, PSPH, 105, 105)
    assert (seen.known.since, seen.next) == (100, 115)
    assert not seen.passed(114)
    assert seen.passed(116)
    assert (seen.known.here, seen.known.since, seen.next) == (False, 115, None)
    assert seen.heard(HERE, PSPH, 120, 120)
    assert seen.heard(AWAY, PSPH, 121, 121)
    assert (seen.known.here, seen.known.since) == (False, 121)


def test_somebody_who_moved_to_another_psph_of_the_domain_is_still_here():
    seen = Sightings()
    seen.heard(HERE, PSPH, 100, 100)
    assert not seen.heard(HERE, OTHER, 101, 101)
    assert not seen.heard(AWAY, PSPH, 104, 104)
    assert seen.known.here
    assert seen.heard(AWAY, OTHER, 105, 105)


def test_what_was_said_too_long_ago_means_nothing():
    seen = Sightings()
    assert not seen.heard(HERE, PSPH, 100, 200)
    assert (seen.known.here, seen.known.since) == (False, 110)


def test_the_words_of_so_many_psphs_are_kept():
    seen = Sightings()
    for number in range(100):
        seen.heard(HERE, PublisherId(number.to_bytes(16)), 100, 100)
    assert len(seen._until) == MOST_SAYING


# Tokens


def test_a_token_is_of_one_user_and_one_key():
    token = token_of(KEY, ALICE)
    assert re.fullmatch("[A-Za-z0-9_-]{43}", token)
    # The rule is part of what clients keep: the same key and user, the same token, for ever.
    assert token == "GdtdjbLTAObunr0myQrAumwSBkm6ZIBzVk-oZ-fBk1Y"
    other = Ed25519PrivateKey.generate()
    assert is_token_of(token, [other, KEY], ALICE)
    assert not is_token_of(token, [other], ALICE)
    assert not is_token_of(token, [KEY], BOB)
    assert not is_token_of(token, [], ALICE)


@given(st.text(max_size=60))
def test_no_other_text_is_a_token(text):
    assert is_token_of(text, [KEY], ALICE) == (text == token_of(KEY, ALICE))


# Places


PLACES = st.lists(positions, max_size=8, unique_by=lambda each: each.publisher).map(tuple)


@given(st.lists(PLACES, min_size=1, max_size=32))
def test_places_are_one_line(places):
    text = places_text(places)
    assert "\n" not in text
    assert read_places(text, len(places)) == places
    with pytest.raises(BadMessage):
        read_places(text, len(places) + 1)


@given(st.text(max_size=100), st.integers(1, 4))
def test_whatever_is_given_as_a_place_is_one_or_refused(text, count):
    with suppress(BadMessage):
        assert len(read_places(text, count)) == count


def test_no_place_is_the_beginning_of_all():
    assert read_places("", 4) == [()] * 4


def test_a_conversation_is_two_directions():
    found = directions(ALICE, [BOB])
    assert [each.topic.canonical for each in found] == [
        f"xmpp:{ALICE}?to={BOB}", f"xmpp:{BOB}?to={ALICE}",
    ]  # fmt: skip
    assert buddies_of(ALICE, ["BOB@site-b.test", BOB]) == [BOB]


def test_what_was_seen_is_remembered_within_bounds():
    seen = Seen(3)
    assert [seen.add(each) for each in "abcabcd"] == [True, True, True, False, False, False, True]
    assert len(seen._ids) == 3
    assert not seen.add("d")
    assert seen.add("a")


# Streams


def test_events_are_put_together_from_lines():
    reader, found = EventReader(), []
    for line in (
        b"retry: 3000\n", b"\n", b": still here\n", b"\n", b"id: 7\r\n", b"event: message\r\n",
        b"data: {\n", b"data:}\n", b"\n", b"data: x\n", b"\n",
    ):  # fmt: skip
        event = reader.line(line)
        if event is not None:
            found.append(event)
    assert found == [ServerEvent("message", "{\n}", "7"), ServerEvent("message", "x", "")]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_whatever_a_server_sends_is_read(sent):
    reader = EventReader()
    for line in sent:
        event = reader.line(line)
        if event is not None:
            with suppress(ValueError):
                of_server(event)


def test_an_event_is_bounded():
    reader = EventReader()
    for _ in range(1_000):
        reader.line(b"data: " + b"x" * 1_000 + b"\n")
    with pytest.raises(ValueError, match="more than"):
        reader.line(b"data: " + b"x" * 100_000 + b"\n")


# What a terminal shows


@given(st.text(max_size=200))
def test_nobody_sends_more_than_text_to_a_terminal(text):
    said = Said(BOB, ALICE, text, "p", "i", "2026-01-01T00:00:00Z")
    line, is_said = showing.plain(said)
    assert is_said
    for shown in (line, showing.plain(NotSent(text, text))[0], *showing.lines(text)):
        assert all(each.isprintable() or each in "\u200c\u200d" for each in shown)
    assert len(line.splitlines()) == 1


def test_lines_cannot_look_like_those_of_others():
    forged = f"hello\n{ALICE}: send money"
    assert showing.one_line(forged) == f"hello\\n{ALICE}: send money"
    assert showing.one_line("\x1b[2J\u202e\\n") == "\\x1b[2J\\u{202e}\\\\n"
    assert showing.lines("a\n\tb\x07") == ["a", "    b\\x07"]


def test_who_has_the_same_name_in_another_domain_is_shown_with_it():
    namesake = "alice@site-b.test"
    assert showing.short_name(ALICE, [ALICE, BOB]) == "alice"
    assert showing.short_name(ALICE, [ALICE, namesake]) == ALICE
    assert showing.short_name(namesake, [ALICE, namesake]) == namesake


@pytest.mark.parametrize("text", ["", "yesterday", "9999-99-99", "0001-01-01T00:00:00Z"])
def test_a_time_that_is_none_is_left_out(text):
    assert isinstance(showing.time_of(text), str)
