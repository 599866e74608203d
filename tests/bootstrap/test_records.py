"""The TXT record: its text both ways, what is refused, and which keys of a zone are believed."""

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap import Announcement, BadRecord, zone_keys
from bootstrap.records import (
    ANNOUNCEMENT,
    MAX_LEVELS,
    PROXY,
    RENDEZVOUS,
    is_announcement,
    owner_names,
)
from identifiers import ID_VERSION, ScopeId, scope_id, zone_of_host

ZONE = "site-a.test"
KEY = bytes(range(32))
SID = str(scope_id(ZONE))


def test_the_text_of_a_record():
    record = Announcement.of_zone(ZONE, KEY)
    key = base64.b64encode(KEY).decode()
    assert record.strings() == ("v=psirp1", f"sid={SID}", f"ids={ID_VERSION}", f"key={key}")
    assert record.text() == f"v=psirp1 sid={SID} ids={ID_VERSION} key={key}"
    assert record.rdata() == f'"v=psirp1" "sid={SID}" "ids={ID_VERSION}" "key={key}"'
    assert "key" not in Announcement.of_zone(ZONE).text()


@given(
    st.binary(min_size=32, max_size=32),
    st.dates().map(lambda day: f"1-{day}"),
    st.none() | st.binary(min_size=32, max_size=32),
)
def test_text_and_back(sid, version, key):
    record = Announcement(ScopeId(sid), version, key)
    assert Announcement.parse(record.text()) == record
    assert all(len(each) <= 255 for each in record.strings())
    assert is_announcement(record.text())


def test_order_spaces_and_unknown_fields_do_not_matter():
    text = f"ids={ID_VERSION}  later=x=y  sid={SID} v=psirp1"
    assert Announcement.parse(text) == Announcement.of_zone(ZONE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no v=psirp1"),
        (f"v=psirp2 sid={SID} ids=1-2026-10-22", "no v=psirp1"),
        ("v=psirp1 ids=1-2026-10-22", "no sid="),
        (f"v=psirp1 sid={SID}", "no ids="),
        (f"v=psirp1 sid={SID[:-1]} ids=1-2026-10-22", "not a ScopeId"),
        (f"v=psirp1 sid={SID.upper()} ids=1-2026-10-22", "not a ScopeId"),
        (f"v=psirp1 sid={SID} ids=1-2026-13-22", "not an id version"),
        (f"v=psirp1 sid={SID} ids=1-2026-10-22 key=", "not 32 bytes"),
        (f"v=psirp1 sid={SID} ids=1-2026-10-22 key=AAAA", "not 32 bytes"),
        (f"v=psirp1 sid={SID} ids=1-2026-10-22 key=!", "not 32 bytes"),
        # The last bits of such a key mean nothing: a second spelling of the one with "A=".
        (f"v=psirp1 sid={SID} ids=1-2026-10-22 key={'A' * 42}B=", "not 32 bytes"),
        (f"v=psirp1 sid={SID} sid={SID} ids=1-2026-10-22", "'sid' twice"),
        (f"v=psirp1 sid={SID} ids=1-2026-10-22 word", "no field"),
        (f"v=psirp1 sid={SID} ids=1-2026-10-22 =x", "no field"),
        (f"v=psirp1 sid={SID} ids=1-2026-10-22 x={'y' * 2_000}", "more than 1,024"),
    ],
)
def test_what_is_refused_and_why(text, why):
    with pytest.raises(BadRecord) as refused:
        Announcement.parse(text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


fields = st.sampled_from(
    ["v=psirp1", f"sid={SID}", f"ids={ID_VERSION}", f"key={'A' * 43}=", "v=", "sid=", "key=\x1b["]
)


@given(st.text() | st.lists(fields | st.text(max_size=8), max_size=8).map(" ".join))
@example(f"v=psirp1 sid={SID} ids=٣-2026-10-22")
def test_any_text_is_read_or_refused_in_one_printable_line(text):
    is_announcement(text)
    record, refusal = None, ""
    try:
        record = Announcement.parse(text)
    except BadRecord as error:
        refusal = str(error)
    assert refusal.isprintable()
    assert record is None or Announcement.parse(record.text()) == record


def test_a_key_has_32_bytes():
    with pytest.raises(BadRecord):
        Announcement.of_zone(ZONE, b"short")


def test_others_records_are_not_meant_for_us():
    assert not is_announcement("v=spf1 -all")
    assert not is_announcement("v=psirp10 sid=x")
    assert is_announcement("v=psirp1")


def test_the_keys_of_a_zone():
    other = bytes(32)
    read = zone_keys([Announcement.of_zone(ZONE, KEY), Announcement.of_zone(ZONE, other)], ZONE)
    assert read == ((other, KEY), str(ID_VERSION), (), False)
    assert zone_keys([Announcement.of_zone(ZONE)], ZONE) == ((), str(ID_VERSION), (), False)
    assert zone_keys([], ZONE) == ((), None, (), False)


def test_a_lie_is_refused_and_the_truth_beside_it_believed():
    lie, truth = Announcement.of_zone("site-b.test", bytes(32)), Announcement.of_zone(ZONE, KEY)
    read = zone_keys([lie, truth], ZONE)
    assert (read.keys, read.refused) == ((KEY,), False)
    (problem,) = read.problems
    assert problem.startswith(f"says sid={scope_id('site-b.test')}")
    assert SID in problem
    assert "version" not in problem


def test_nothing_but_lies():
    read = zone_keys([Announcement.of_zone("site-b.test", KEY)], ZONE)
    assert (read.keys, read.id_version, read.refused) == ((), None, True)


def test_an_id_of_another_version_is_told_from_a_lie():
    (problem,) = zone_keys([Announcement(ScopeId(bytes(32)), "2-2031-01-01")], ZONE).problems
    assert "2-2031-01-01" in problem
    assert str(ID_VERSION) in problem


def test_two_keys_are_believed_and_the_same_two_by_everybody():
    records = [Announcement.of_zone(ZONE, bytes([number]) * 32) for number in (3, 1, 2)]
    for order in (records, records[::-1]):
        read = zone_keys(order, ZONE)
        assert read.keys == (b"\1" * 32, b"\2" * 32)
        assert read.problems == ("3 keys are published and only 2 believed: remove the oldest",)
        assert not read.refused
    # One key twice is one key.
    assert zone_keys([*records[:2], records[0]], ZONE).problems == ()


def test_the_names_from_a_host_up_to_its_zone():
    assert owner_names(PROXY, "a.b.site-a.test", ZONE) == (
        "_psirp._tcp.a.b.site-a.test",
        "_psirp._tcp.b.site-a.test",
        "_psirp._tcp.site-a.test",
    )
    assert owner_names(ANNOUNCEMENT, ZONE, ZONE) == ("_psirp.site-a.test",)
    assert owner_names(RENDEZVOUS, "localhost", "localhost") == ("_psirp-rv._udp.localhost",)


label = st.from_regex(r"[a-z]{1,30}", fullmatch=True)


@given(st.lists(label, min_size=1, max_size=40).map(".".join).filter(lambda h: len(h) <= 253))
def test_however_deep_a_host_is_few_names_are_asked_for(host):
    zone = zone_of_host(host)
    names = owner_names(RENDEZVOUS, host, zone)
    assert 1 <= len(names) <= MAX_LEVELS
    assert names[-1] == f"{RENDEZVOUS}.{zone}"
    assert len(f"{RENDEZVOUS}.{host}") > 253 or names[0] == f"{RENDEZVOUS}.{host}"
    assert all(host.endswith(name.removeprefix(f"{RENDEZVOUS}.")) for name in names)
    assert all(len(name) <= 253 for name in names)
