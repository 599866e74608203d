"""From a domain to what serves it: walking up, caches, lies, and name servers that are down."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import pytest
from dns.rdtypes.ANY.TXT import TXT
from dns.rdtypes.IN.SRV import SRV
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap import (
    Announcement,
    CacheBounds,
    Endpoint,
    LookupSettings,
    NameServerFailed,
    NothingFound,
    Resolver,
    Server,
    Source,
)
from identifiers import ID_VERSION, InvalidTopic, scope_id
from tests.bootstrap.name_servers import RECORDS, SERVERS, ZONE
from tests.bootstrap.scripted import scripted

KEY = bytes(range(32))
PATIENT = LookupSettings(timeout=20, attempts=1, total=30)
BOUNDS = CacheBounds(longest=500, longest_negative=400, stale_for=10_000, retry_after=5)

PROXY_AT_ZONE = "_psirp._tcp.site-a.test"
RENDEZVOUS_AT_ZONE = "_psirp-rv._udp.site-a.test"
TEXT_AT_ZONE = "_psirp.site-a.test"


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def world(conversation, *, settings=PATIENT, **more):
    """Run `conversation(resolver, server, clock)` with a server that knows the zone."""

    async def main():
        clock = Clock()
        async with scripted() as server:
            server.put(PROXY_AT_ZONE, "SRV", "10 5 8080 hub.site-a.test.")
            server.put(RENDEZVOUS_AT_ZONE, "SRV", "0 0 7000 rv.site-a.test.")
            server.put(TEXT_AT_ZONE, "TXT", Announcement.of_zone(ZONE, KEY).rdata())
            server.put("hub.site-a.test", "A", "192.0.2.1")
            server.put("hub.site-a.test", "AAAA", "2001:db8::1")
            server.put("rv.site-a.test", "A", "192.0.2.2")
            options = {"bounds": BOUNDS, "stale_after": 30.0, **more}
            async with Resolver(
                [server.server], clock=clock, settings=settings, **options
            ) as resolver:
                return await conversation(resolver, server, clock)

    return asyncio.run(main())


def broken(query, tcp):
    """A hook: the server is in trouble. It says so, because silence would need a short time-out,
    and the machine may be slow."""
    answer = dns.message.make_response(query)
    answer.set_rcode(dns.rcode.SERVFAIL)
    return answer


async def until(condition):
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never held")


HUB = Endpoint("hub.site-a.test", 8080, 10, 5, ("192.0.2.1", "2001:db8::1"))
RV = Endpoint("rv.site-a.test", 7000, 0, 0, ("192.0.2.2",))


def test_everything_about_a_zone():
    async def conversation(resolver, server, clock):
        found = await resolver.find(ZONE)
        assert (found.host, found.zone, found.sid) == (ZONE, ZONE, scope_id(ZONE))
        assert found.proxies == (HUB,)
        assert found.rendezvous == (RV,)
        assert found.keys == (KEY,)
        assert found.id_version == str(ID_VERSION)
        assert found.nameserver == str(server.server)
        assert found.expires_in == 300
        assert not found.stale
        assert not found.refused
        assert found.problems == ()
        assert found.sources == tuple(
            Source(owner, kind, str(server.server), 300, False)
            for owner, kind in (
                (PROXY_AT_ZONE, "SRV"),
                (RENDEZVOUS_AT_ZONE, "SRV"),
                (TEXT_AT_ZONE, "TXT"),
            )
        )

    world(conversation)


@pytest.mark.parametrize("kind", SERVERS)
def test_from_real_servers(kind, tmp_path):
    records = [
        *RECORDS,
        "_psirp._tcp 60 IN SRV 10 5 8080 news",
        f"_psirp 120 IN TXT {Announcement.of_zone(ZONE, KEY).rdata()}",
    ]

    async def main(server):
        async with Resolver([server.address], settings=PATIENT) as resolver:
            found = await resolver.find("http://news.site-a.test:8081/feed.xml")
            with pytest.raises(NameServerFailed, match="refuses"):
                await resolver.find("elsewhere.test")
        assert found.proxies == (Endpoint("news.site-a.test", 8080, 10, 5, ("127.0.0.1",)),)
        assert found.keys == (KEY,)
        assert found.expires_in <= 5  # so long it is sure that the host has none of its own
        assert [each.ttl for each in found.sources] == [60, 120]

    with SERVERS[kind](tmp_path, {ZONE: records}) as server:
        asyncio.run(main(server))


def test_urls_jids_and_odd_spellings_are_the_same_host():
    async def conversation(resolver, server, clock):
        names = [
            "news.site-a.test",
            "NEWS.Site-A.test.",
            "http://news.site-a.test:8081/feed.xml?x=1#y",
            "https://NEWS.site-a.test",
            "xmpp:alice@news.site-a.test",
            "ｎews.site-a.test",
        ]
        found = {await resolver.find(name) for name in names}
        assert {each.host for each in found} == {"news.site-a.test"}
        assert server.asked(PROXY_AT_ZONE, "SRV") == 1

    world(conversation)


def test_an_international_name():
    async def conversation(resolver, server, clock):
        server.put("_psirp._tcp.xn--bcher-kva.test", "SRV", "0 0 80 hub.site-a.test.")
        found = await resolver.find("Bücher.test")
        assert (found.host, found.proxies[0].port) == ("xn--bcher-kva.test", 80)

    world(conversation)


@pytest.mark.parametrize("name", ["", "a b", "http://", "ftp://x.test/", "a..b", "x.test:80", "\n"])
def test_what_is_no_domain(name):
    async def conversation(resolver, server, clock):
        with pytest.raises(InvalidTopic):
            await resolver.find(name)
        assert server.questions == []

    world(conversation)


def test_addresses_have_no_records_and_nobody_is_asked():
    async def conversation(resolver, server, clock):
        for name in ("127.0.0.1", "::1", "[::1]", "http://192.0.2.1:80/feed"):
            with pytest.raises(NothingFound, match="is an address"):
                await resolver.find(name)
        assert server.questions == []

    world(conversation)


def test_a_single_label_is_asked_for_and_nothing_above_it():
    async def conversation(resolver, server, clock):
        server.put("_psirp._tcp.broker", "SRV", "0 0 80 hub.site-a.test.")
        assert (await resolver.find("broker")).proxies[0].host == "hub.site-a.test"
        assert {owner for owner, kind in server.questions if kind != "A" and kind != "AAAA"} == {
            "_psirp._tcp.broker",
            "_psirp-rv._udp.broker",
            "_psirp.broker",
        }

    world(conversation)


def test_each_kind_is_found_where_it_is_first_on_the_way_up():
    async def conversation(resolver, server, clock):
        server.put("_psirp._tcp.b.site-a.test", "SRV", "1 0 81 hub.site-a.test.")
        found = await resolver.find("a.b.site-a.test")
        assert [each.port for each in found.proxies] == [81]
        assert found.rendezvous == (RV,)
        assert [each.owner for each in found.sources] == [
            "_psirp._tcp.b.site-a.test",
            RENDEZVOUS_AT_ZONE,
            TEXT_AT_ZONE,
        ]
        assert server.asked(PROXY_AT_ZONE, "SRV") == 0

    world(conversation)


def test_it_never_walks_beyond_the_zone():
    async def conversation(resolver, server, clock):
        server.put("_psirp._tcp.test", "SRV", "0 0 80 hub.site-a.test.")
        server.put("_psirp._tcp.co.uk", "SRV", "0 0 80 hub.site-a.test.")
        for name in ("a.site-b.test", "a.b.example.co.uk"):
            with pytest.raises(NothingFound):
                await resolver.find(name)
        assert server.asked("_psirp._tcp.test", "SRV") == 0
        assert server.asked("_psirp._tcp.co.uk", "SRV") == 0
        assert server.asked("_psirp._tcp.example.co.uk", "SRV") == 1

    world(conversation)


def test_nothing_found_is_remembered_for_as_long_as_the_zone_says():
    async def conversation(resolver, server, clock):
        server.negative_ttl = 100
        with pytest.raises(NothingFound) as nothing:
            await resolver.find("www.site-b.test")
        assert "www.site-b.test or above it up to site-b.test" in str(nothing.value)
        assert nothing.value.expires_in == 100
        assert len(server.questions) == 6
        clock.now += 99
        with pytest.raises(NothingFound) as again:
            await resolver.find("www.site-b.test")
        assert again.value.expires_in == pytest.approx(1)
        # Another host of the zone profits from what is known about the zone.
        with pytest.raises(NothingFound):
            await resolver.find("ftp.site-b.test")
        assert len(server.questions) == 9
        server.put("_psirp._tcp.site-b.test", "SRV", "0 0 80 hub.site-a.test.")
        clock.now += 1
        assert (await resolver.find("www.site-b.test")).proxies

    world(conversation)


def test_negative_answers_have_a_cap():
    async def conversation(resolver, server, clock):
        server.negative_ttl = 100_000
        with pytest.raises(NothingFound) as nothing:
            await resolver.find("site-b.test")
        assert nothing.value.expires_in == 400

    world(conversation)


def test_the_shortest_time_to_live_counts_and_only_what_ran_out_is_asked_again():
    async def conversation(resolver, server, clock):
        server.put(PROXY_AT_ZONE, "SRV", "10 5 8080 hub.site-a.test.", ttl=100)
        server.put("hub.site-a.test", "A", "192.0.2.1", ttl=50)
        server.put(TEXT_AT_ZONE, "TXT", Announcement.of_zone(ZONE, KEY).rdata(), ttl=100_000)
        assert (await resolver.find(ZONE)).expires_in == 50
        clock.now += 49
        before = len(server.questions)
        assert (await resolver.find(ZONE)).expires_in == pytest.approx(1)
        assert len(server.questions) == before
        clock.now += 1
        server.put("hub.site-a.test", "A", "192.0.2.7", ttl=1_000)
        found = await resolver.find(ZONE)
        assert found.proxies[0].addresses == ("192.0.2.7", "2001:db8::1")
        assert found.expires_in == pytest.approx(50)  # of the SRV record, asked for 50 s ago
        assert server.questions[before:] == [("hub.site-a.test", "A")]
        clock.now += 460  # the TXT record is kept for 500 s, not for 100,000
        await resolver.find(ZONE)
        assert server.asked(TEXT_AT_ZONE, "TXT") == 2

    world(conversation)


def test_a_time_to_live_of_0_is_not_a_question_each_time():
    async def conversation(resolver, server, clock):
        server.put(PROXY_AT_ZONE, "SRV", "10 5 8080 hub.site-a.test.", ttl=0)
        for _ in range(5):
            assert (await resolver.find(ZONE)).expires_in == 1
        assert server.asked(PROXY_AT_ZONE, "SRV") == 1
        clock.now += 1
        await resolver.find(ZONE)
        assert server.asked(PROXY_AT_ZONE, "SRV") == 2

    world(conversation)


def test_many_who_ask_at_once_are_one_question():
    async def conversation(resolver, server, clock):
        hosts = ["a.site-a.test", "b.site-a.test", "site-a.test"]
        found = await asyncio.gather(*(resolver.find(host) for host in hosts * 100))
        assert len({each.proxies for each in found}) == 1
        assert set(Counter(server.questions).values()) == {1}

    world(conversation)


def test_one_who_gives_up_does_not_end_it_for_the_others():
    async def conversation(resolver, server, clock):
        held = []
        server.hook = lambda query, tcp: held.append(query)
        first = asyncio.create_task(resolver.find(ZONE))
        second = asyncio.create_task(resolver.find(ZONE))
        await until(lambda: len(held) >= 3)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        server.hook = None
        assert (await second).proxies == (HUB,)

    # The held questions are asked once more, after the time-out.
    world(conversation, settings=LookupSettings(timeout=0.3, attempts=50, total=60))


def test_failure_of_one_kind_fails_all():
    """Else whoever keeps a TXT record from us could speak for a zone that has a key."""

    async def conversation(resolver, server, clock):
        def no_txt(query, tcp):
            txt = query.question[0].rdtype == dns.rdatatype.TXT
            return broken(query, tcp) if txt else server.usual(query)

        server.hook = no_txt
        with pytest.raises(NameServerFailed, match="SERVFAIL"):
            await resolver.find(ZONE)
        # The failure is remembered, but not for long.
        with pytest.raises(NameServerFailed, match="SERVFAIL"):
            await resolver.find(ZONE)
        assert server.asked(TEXT_AT_ZONE, "TXT") == 1
        server.hook = None
        clock.now += 5
        assert (await resolver.find(ZONE)).keys == (KEY,)

    world(conversation)


def test_old_answers_are_given_and_marked_while_dns_is_down():
    async def conversation(resolver, server, clock):
        fresh = await resolver.find(ZONE)
        server.hook = broken
        clock.now += 300
        stale = await resolver.find(ZONE)
        assert stale.stale
        assert stale.expires_in == 0
        assert all(each.stale for each in stale.sources)
        unmarked = {"stale": False, "sources": fresh.sources, "expires_in": fresh.expires_in}
        assert replace(stale, **unmarked) == fresh
        asked = len(server.questions)
        for _ in range(10):  # nobody is bothered for the next seconds
            assert (await resolver.find(ZONE)).stale
        assert len(server.questions) == asked
        clock.now += 5
        assert (await resolver.find(ZONE)).stale
        assert len(server.questions) > asked
        # One that was never asked for has no old answer.
        with pytest.raises(NameServerFailed, match="SERVFAIL"):
            await resolver.find("site-b.test")
        server.hook = None
        clock.now += 5
        assert not (await resolver.find(ZONE)).stale

    world(conversation)


def test_old_answers_have_an_end():
    async def conversation(resolver, server, clock):
        await resolver.find(ZONE)
        server.hook = broken
        clock.now += 300 + 9_999
        assert (await resolver.find(ZONE)).stale
        clock.now += 6
        with pytest.raises(NameServerFailed):
            await resolver.find(ZONE)

    world(conversation)


def test_that_there_is_nothing_is_said_while_dns_is_down_too():
    async def conversation(resolver, server, clock):
        with pytest.raises(NothingFound):
            await resolver.find("site-b.test")
        server.hook = broken
        clock.now += 70
        with pytest.raises(NothingFound) as nothing:
            await resolver.find("site-b.test")
        assert nothing.value.stale
        assert nothing.value.expires_in == 0

    world(conversation)


def test_who_has_an_old_answer_does_not_wait_long_and_hears_the_new_one_later():
    async def conversation(resolver, server, clock):
        await resolver.find(ZONE)
        clock.now += 300
        held = asyncio.Event()
        usual = server.usual

        def silent_then_slow(query, tcp):
            return usual(query) if held.is_set() else None

        server.hook = silent_then_slow
        # The question takes up to a minute; the old answer comes after a moment.
        assert (await asyncio.wait_for(resolver.find(ZONE), 30)).stale
        assert (await asyncio.wait_for(resolver.find(ZONE), 30)).stale
        held.set()
        server.put(PROXY_AT_ZONE, "SRV", "1 1 9090 hub.site-a.test.")
        clock.now += 5
        # Asked again behind our back, without anybody's patience being tried.
        for _ in range(3_000):
            found = await resolver.find(ZONE)
            if not found.stale:
                break
            clock.now += 5
            await asyncio.sleep(0.01)
        assert found.proxies[0].port == 9090

    world(
        conversation,
        settings=LookupSettings(timeout=0.2, attempts=300, total=60),
        stale_after=0.05,
    )


def test_not_here_ends_the_walk():
    async def conversation(resolver, server, clock):
        server.put("_psirp._tcp.www.site-a.test", "SRV", "0 0 0 .")
        found = await resolver.find("www.site-a.test")
        assert found.proxies == ()
        assert found.rendezvous == (RV,)
        assert server.asked(PROXY_AT_ZONE, "SRV") == 0
        server.put("_psirp._tcp.site-b.test", "SRV", "0 0 0 .")
        with pytest.raises(NothingFound, match=r"_psirp\._tcp\.site-b\.test says that nothing"):
            await resolver.find("site-b.test")

    world(conversation)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("0 0 0 hub.site-a.test.", "leads to port 0 of hub.site-a.test"),
        ("0 0 80 127.0.0.1.", "leads to the address 127.0.0.1"),
        ("0 0 80 a\\032b.test.", "which is no host name"),
        ("0 0 0 .", 'says "not here"'),
    ],
)
def test_targets_that_cannot_be_are_left_out_and_said(record, problem):
    async def conversation(resolver, server, clock):
        server.put(PROXY_AT_ZONE, "SRV", record, "10 5 8080 hub.site-a.test.")
        found = await resolver.find(ZONE)
        assert found.proxies == (HUB,)
        (said,) = found.problems
        assert said.startswith(f"SRV {PROXY_AT_ZONE} ")
        assert problem in said

    world(conversation)


def test_nothing_but_bad_targets_is_nothing_with_a_reason():
    async def conversation(resolver, server, clock):
        server.put("_psirp._tcp.site-b.test", "SRV", "0 0 0 hub.site-a.test.")
        with pytest.raises(NothingFound) as nothing:
            await resolver.find("site-b.test")
        assert "port 0" in nothing.value.problems[0]

    world(conversation)


def test_a_target_without_address_and_one_that_nobody_answers_for():
    async def conversation(resolver, server, clock):
        server.put(
            PROXY_AT_ZONE, "SRV", "0 0 80 gone.site-a.test.", "1 0 80 lame.test.", ttl=300
        )  # fmt: skip

        def hook(query, tcp):
            if query.question[0].name.to_text() == "lame.test.":
                answer = dns.message.make_response(query)
                answer.set_rcode(dns.rcode.REFUSED)
                return answer
            return server.usual(query)

        server.hook = hook
        found = await resolver.find(ZONE)
        assert [(each.host, each.addresses) for each in found.proxies] == [
            ("gone.site-a.test", ()),
            ("lame.test", ()),
        ]
        assert found.problems[0] == "gone.site-a.test has no address"
        assert found.problems[1].startswith("the addresses of lame.test are unknown: ")
        assert found.expires_in == 5  # perhaps the other server comes back

    world(conversation)


def test_an_alias_leads_to_the_records_of_another():
    async def conversation(resolver, server, clock):
        server.put("_psirp._tcp.site-b.test", "CNAME", f"{PROXY_AT_ZONE}.", ttl=40)
        found = await resolver.find("site-b.test")
        assert found.proxies == (HUB,)
        assert found.expires_in == 40
        # The announcement is another matter: an alias to another zone's would be a lie.
        server.put("_psirp.site-c.test", "CNAME", f"{TEXT_AT_ZONE}.")
        assert (await resolver.find("site-c.test")).refused

    world(conversation)


def test_a_lying_record_is_refused_and_said():
    async def conversation(resolver, server, clock):
        lie = Announcement.of_zone("site-b.test", bytes(32))
        server.put(TEXT_AT_ZONE, "TXT", lie.rdata())
        found = await resolver.find(ZONE)
        assert found.refused
        assert (found.keys, found.id_version) == ((), None)
        assert found.proxies == (HUB,)
        (problem,) = found.problems
        assert problem.startswith(f"TXT {TEXT_AT_ZONE} says sid={lie.sid}")
        clock.now += 300
        server.put(TEXT_AT_ZONE, "TXT", lie.rdata(), Announcement.of_zone(ZONE, KEY).rdata())
        found = await resolver.find(ZONE)
        assert (found.keys, found.refused, len(found.problems)) == ((KEY,), False, 1)

    world(conversation)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ('"v=psirp1"', "has no sid="),
        ('"v=psirp1" "v=psirp1"', "twice"),
        ('"v=psirp1" "sid=\\255\\000\\027[31m"', "has no ids="),
        ('"v=psirp1 ' + 'x" "' * 100 + " ".join(['" "' + "y" * 250] * 5) + '"', "more than 1,024"),
    ],
)
def test_a_malformed_record_is_refused_and_said(record, why):
    async def conversation(resolver, server, clock):
        server.put(TEXT_AT_ZONE, "TXT", record)
        found = await resolver.find(ZONE)
        assert found.refused
        assert why in found.problems[0]
        assert found.problems[0].isprintable()
        # Of a zone with nothing else it is still something: a zone not to be believed.
        server.put("_psirp.site-b.test", "TXT", record)
        assert (await resolver.find("site-b.test")).refused

    world(conversation)


def test_what_a_wildcard_brings_is_neither_an_announcement_nor_the_end_of_the_walk():
    async def conversation(resolver, server, clock):
        server.put("_psirp.www.site-a.test", "TXT", '"v=spf1 -all"')
        found = await resolver.find("www.site-a.test")
        assert (found.keys, found.refused, found.problems) == ((KEY,), False, ())
        server.put("_psirp.site-b.test", "TXT", '"v=spf1 -all"')
        with pytest.raises(NothingFound):
            await resolver.find("site-b.test")

    world(conversation)


def test_a_zone_with_a_key_and_nobody_who_serves_it():
    async def conversation(resolver, server, clock):
        server.put("_psirp.site-b.test", "TXT", Announcement.of_zone("site-b.test", KEY).rdata())
        found = await resolver.find("site-b.test")
        assert (found.keys, found.proxies) == ((KEY,), ())

    world(conversation)


def test_three_keys():
    async def conversation(resolver, server, clock):
        records = [Announcement.of_zone(ZONE, bytes([n]) * 32).rdata() for n in (3, 2, 1)]
        server.put(TEXT_AT_ZONE, "TXT", *records)
        found = await resolver.find(ZONE)
        assert found.keys == (b"\1" * 32, b"\2" * 32)
        assert "3 keys are published" in found.problems[0]

    world(conversation)


names = st.lists(st.binary(min_size=1, max_size=12), max_size=4).map(
    lambda labels: dns.name.Name([*labels, b""])
)
numbers = st.integers(0, 65_535)
targets = st.builds(
    lambda *fields: SRV(dns.rdataclass.IN, dns.rdatatype.SRV, *fields), *[numbers] * 3, names
)
words = st.sampled_from(
    [b"v=psirp1", f"sid={scope_id(ZONE)}".encode(), f"ids={ID_VERSION}".encode()]
)
texts = st.lists(words | st.binary(max_size=60), min_size=1, max_size=6).map(
    lambda strings: TXT(dns.rdataclass.IN, dns.rdatatype.TXT, strings)
)


@given(st.tuples(*(st.lists(each, max_size=4) for each in (targets, targets, texts))))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_records_hold_it_is_found_or_not_and_problems_are_printable(records):
    async def conversation(resolver, server, clock):
        owners = ("_psirp._tcp.site-b.test", "_psirp-rv._udp.site-b.test", "_psirp.site-b.test")
        sets = {
            dns.name.from_text(owner): dns.rrset.from_rdata_list(dns.name.from_text(owner), 9, each)
            for owner, each in zip(owners, records, strict=True)
            if each
        }

        def hook(query, tcp):
            answer = dns.message.make_response(query)
            (question,) = query.question
            if question.name in sets and sets[question.name].rdtype == question.rdtype:
                answer.answer.append(sets[question.name])
            return answer

        server.hook = hook
        problems = ()
        try:
            found = await resolver.find("site-b.test")
            problems = found.problems
            assert all(each.port > 0 and each.host for each in found.proxies + found.rendezvous)
            assert found.keys == ()
        except NothingFound as nothing:
            problems = nothing.problems
        assert all(each.isprintable() for each in problems)

    world(conversation)


def test_more_records_than_anybody_needs():
    async def conversation(resolver, server, clock):
        targets = [f"{number} 0 80 hub.site-a.test." for number in range(100)]
        server.put(PROXY_AT_ZONE, "SRV", *targets)
        records = [Announcement.of_zone(ZONE, bytes([n]) * 32).rdata() for n in range(60)]
        server.put(TEXT_AT_ZONE, "TXT", *records)
        found = await resolver.find(ZONE)
        assert [each.priority for each in found.proxies] == list(range(32))
        assert len(found.keys) == 2
        assert any("100 targets" in each for each in found.problems)
        assert any("60 records" in each for each in found.problems)

    world(conversation)


def test_addresses_that_come_along_are_not_asked_for():
    async def conversation(resolver, server, clock):
        def generous(query, tcp):
            answer = server.usual(query)
            if answer.answer and answer.answer[0].rdtype == dns.rdatatype.SRV:
                for host in ("hub", "rv"):
                    name = f"{host}.site-a.test."
                    answer.additional.append(dns.rrset.from_text(name, 20, "IN", "A", "192.0.2.9"))
            return answer

        server.hook = generous
        found = await resolver.find(ZONE)
        assert found.proxies[0].addresses == ("192.0.2.9",)
        assert found.expires_in == 20
        assert {kind for _, kind in server.questions} == {"SRV", "TXT"}

    world(conversation)


def test_the_order_to_try_and_what_failed():
    async def conversation(resolver, server, clock):
        a, b = Endpoint("a.test", 80, 1), Endpoint("b.test", 80, 2)
        assert resolver.order([b, a]) == [a, b]
        resolver.failed(a)
        assert resolver.order([b, a]) == [b, a]
        resolver.worked(a)
        assert resolver.order([b, a]) == [a, b]
        resolver.failed(a)
        clock.now += 31
        assert resolver.order([b, a]) == [a, b]
        same = [Endpoint(host, 80, 0, 1) for host in "abcdef"]
        assert len({tuple(resolver.order(same)) for _ in range(50)}) > 10

    world(conversation, random=random.Random(1))


def test_closing_ends_what_is_under_way():
    async def conversation(resolver, server, clock):
        server.hook = lambda query, tcp: None
        waiting = [asyncio.create_task(resolver.find(name)) for name in (ZONE, "site-b.test")]
        await until(lambda: len(server.questions) == 6)
        await resolver.close()
        for each in waiting:
            with pytest.raises(NameServerFailed, match="closed"):
                await each
        with pytest.raises(NameServerFailed, match="closed"):
            await resolver.find("site-c.test")

    world(conversation)


def test_a_server_that_is_down_and_comes_back(tmp_path):
    """Real sockets and the real clock, with a real server that is stopped and started."""
    records = [*RECORDS, "_psirp._tcp 1 IN SRV 10 5 8080 news"]
    bounds = CacheBounds(retry_after=0.1)

    async def states(resolver, wanted):
        async with asyncio.timeout(60):
            while (await resolver.find(ZONE)).stale is not wanted:
                await asyncio.sleep(0.02)

    async def main(server):
        async with Resolver([server.address], bounds=bounds, settings=PATIENT) as resolver:
            await states(resolver, False)
            await asyncio.to_thread(server.stop)
            await states(resolver, True)
            await asyncio.to_thread(server.start)
            await states(resolver, False)

    with SERVERS["embedded"](tmp_path, {ZONE: records}) as server:
        asyncio.run(main(server))


def test_servers_may_be_given_as_text():
    async def main():
        async with Resolver(["127.0.0.1:1", Server("127.0.0.1", 2)]) as resolver:
            with pytest.raises(NameServerFailed) as failure:
                await resolver.find(ZONE)
        assert "127.0.0.1:1 cannot" in str(failure.value)
        assert "127.0.0.1:2 cannot" in str(failure.value)

    asyncio.run(main())
