"""What has to change, given what is there."""

from dataclasses import replace

import dns.name
import dns.rdata
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.records import ANNOUNCEMENT, MAX_KEYS, PROXY, RENDEZVOUS, Announcement, zone_keys
from bootstrap.registration import RegistrarSettings, TsigKey, planning
from bootstrap.registration.changes import Records
from bootstrap.registration.planning import Seen, announcement_rdata, leaving, peers, plan
from bootstrap.registration.settings import Target
from identifiers import scope_id

ZONE = "site-a.test"
KEYS = tuple(bytes([number]) * 32 for number in range(1, 5))
SETTINGS = RegistrarSettings(
    ("127.0.0.1", 53), TsigKey("a", bytes(16)), Target("psph1.site-a.test", 80), (ZONE,)
)


def srv(text):
    return dns.rdata.from_text("IN", "SRV", text)


def txt(*strings):
    return dns.rdata.from_text("IN", "TXT", " ".join(f'"{each}"' for each in strings))


def announced(key=None, version=None, zone=ZONE):
    announcement = Announcement.of_zone(zone, key)
    return announcement_rdata(replace(announcement, id_version=version or announcement.id_version))


def seen(proxies=(), rendezvous=(), announcements=()):
    return Seen(*(Records(frozenset(each), 300) for each in (proxies, rendezvous, announcements)))


def applied(change, before):
    """What a name server makes of it: removals first, as we send them."""
    sets = {
        planning.owner(PROXY, ZONE): set(before.proxies.rdatas),
        planning.owner(RENDEZVOUS, ZONE): set(before.rendezvous.rdatas),
        planning.owner(ANNOUNCEMENT, ZONE): set(before.announcements.rdatas),
    }
    for record in change.removed:
        sets[record.name].discard(record.rdata)
    for record in change.added:
        sets[record.name].add(record.rdata)
    return seen(*sets.values())


VERSIONS = st.sampled_from([None, "1-2001-01-01", "1-2999-01-01", "2-2001-01-01"])
RECORDS = st.builds(
    seen,
    st.sets(
        st.sampled_from(
            [
                srv("0 10 80 psph1.site-a.test."),
                srv("9 9 80 PSPH1.site-a.test."),
                srv("0 10 81 psph1.site-a.test."),
                srv("0 10 80 psph2.site-a.test."),
                srv("0 0 0 ."),
            ]
        )
    ),
    st.sets(st.sampled_from([srv("0 10 90 rv.site-a.test."), srv("3 3 90 rv.site-a.test.")])),
    st.sets(
        st.one_of(
            st.builds(announced, st.sampled_from([None, *KEYS]), VERSIONS),
            st.sampled_from(
                [
                    txt("v=spf1 -all"),
                    txt("v=psirp1"),
                    txt("v=psirp1", "v=psirp1"),
                    announced(KEYS[0], zone="site-b.test"),
                    txt("v=psirp1 \\255"),
                ]
            ),
        ),
        max_size=6,
    ),
)
ALL_SETTINGS = st.builds(
    lambda keys, retired, rendezvous: replace(
        SETTINGS,
        zone_keys=keys,
        retired_keys=tuple(each for each in retired if each not in keys),
        rendezvous=rendezvous,
    ),
    st.lists(st.sampled_from(KEYS), max_size=2, unique=True).map(tuple),
    st.sets(st.sampled_from(KEYS)),
    st.sampled_from([(), (Target("rv.site-a.test", 90),)]),
)


@given(ALL_SETTINGS, RECORDS)
def test_what_was_mended_needs_no_mending(settings, before):
    change = plan(settings, ZONE, before).change
    after = applied(change, before)
    assert not plan(settings, ZONE, after).change
    assert planning.service(settings, settings.target) in after.proxies.rdatas


@given(ALL_SETTINGS, ALL_SETTINGS, RECORDS)
def test_two_psphs_come_to_rest(one, two, before):
    """Unless one publishes what the other retires, they do not overwrite each other for ever."""
    two = replace(two, target=Target("psph2.site-a.test", 80))
    one = replace(one, retired_keys=tuple(set(one.retired_keys) - set(two.zone_keys)))
    two = replace(two, retired_keys=tuple(set(two.retired_keys) - set(one.zone_keys)))
    now = before
    for _ in range(2):
        for each in (one, two):
            now = applied(plan(each, ZONE, now).change, now)
    assert not plan(one, ZONE, now).change
    assert not plan(two, ZONE, now).change


@given(ALL_SETTINGS, RECORDS)
def test_what_belongs_to_others_stays(settings, before):
    change = plan(settings, ZONE, before).change
    removed = {record.rdata for record in change.removed}
    assert removed.isdisjoint(peers(settings, before.proxies))
    assert txt("v=spf1 -all") not in removed
    for rdata in removed & before.announcements.rdatas:
        found = Announcement.parse(" ".join(each.decode() for each in rdata.strings))
        assert found.sid == scope_id(ZONE)
    after = applied(leaving(settings, ZONE), applied(change, before))
    assert set(peers(settings, after.proxies)) == set(peers(settings, before.proxies))
    assert after.announcements == applied(change, before).announcements


@given(ALL_SETTINGS, st.sets(st.sampled_from(KEYS), max_size=MAX_KEYS))
def test_no_more_keys_than_are_believed(settings, published):
    before = seen(announcements=[announced(each) for each in published])
    planned = plan(settings, ZONE, before)
    after = applied(planned.change, before)
    texts = [b" ".join(each.strings).decode() for each in after.announcements.rdatas]
    found = zone_keys([Announcement.parse(each) for each in texts], ZONE)
    assert found.problems == ()
    assert not set(found.keys) & set(settings.retired_keys)
    missing = set(settings.zone_keys) - set(found.keys)
    assert len(planned.notes) == len(missing)
    assert not missing or len(found.keys) == MAX_KEYS


def test_a_record_that_lies_is_said_and_left_alone():
    lie = announced(KEYS[0], zone="site-b.test")
    planned = plan(SETTINGS, ZONE, seen(announcements=[lie]))
    assert "another scope id than site-a.test" in planned.notes[0]
    assert [record.rdata for record in planned.change.removed] == []


def test_leaving_takes_only_what_is_ours():
    settings = replace(SETTINGS, rendezvous=(Target("rv.site-a.test", 90),))
    change = leaving(settings, ZONE)
    assert [(str(record.name), record.rdata.to_text()) for record in change.removed] == [
        ("_psirp._tcp.site-a.test.", "0 10 80 psph1.site-a.test."),
        ("_psirp-rv._udp.site-a.test.", "0 10 90 rv.site-a.test."),
    ]
    assert change.added == ()


def test_a_removal_expects_what_was_seen():
    peer, own = srv("0 10 80 psph2.site-a.test."), srv("0 10 80 psph1.site-a.test.")
    change = planning.without(ZONE, peer, Records(frozenset([peer, own]), 300))
    assert {record.rdata for record in change.expected} == {peer, own}
    assert [record.rdata for record in change.removed] == [peer]
    assert {record.name for record in (*change.expected, *change.removed)} == {
        dns.name.from_text("_psirp._tcp.site-a.test.")
    }
