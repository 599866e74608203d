"""One question to name servers that answer well, badly, too much, or not at all."""

import asyncio
import random
import socket

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap import BootstrapError, LookupSettings, NameServerFailed, Server
from bootstrap.lookup import MAX_ALIASES, look_up, system_servers
from tests.bootstrap.name_servers import ZONE, bind, embedded
from tests.bootstrap.scripted import scripted
from tests.ports import free_port

QUICK = LookupSettings(timeout=0.5, attempts=2, total=30)
PATIENT = LookupSettings(timeout=20, attempts=1, total=30)
"""Where there is an answer, and only the machine may be slow."""

RECORDS = (
    "@ 300 IN SOA ns hostmaster 1 3600 600 86400 7",
    "@ 300 IN NS ns",
    "ns 300 IN A 127.0.0.1",
    "hub 200 IN A 127.0.0.1",
    "hub 200 IN AAAA ::1",
    "_psirp._tcp 300 IN SRV 10 5 8080 hub",
    "www 100 IN CNAME hub",
    "away 100 IN CNAME host.elsewhere.test.",
    "sub 300 IN NS ns.sub",
    "ns.sub 300 IN A 127.0.0.1",
    *(f'big 300 IN TXT "{number} {"x" * 200}"' for number in range(40)),
)


def asking(owner, kind, server, limits=PATIENT):
    """From a real server, outside of any loop."""
    return asyncio.run(look_up(owner, kind, [Server(*server.nameserver)], limits))


def talking(conversation):
    """Run `conversation(server)` beside a scripted server."""

    async def main():
        async with scripted() as server:
            return await conversation(server)

    return asyncio.run(main())


@pytest.fixture(scope="module", params=[embedded, bind], ids=["embedded", "bind"])
def real(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("dns"), {ZONE: RECORDS}) as server:
        yield server


def test_an_answer_with_the_addresses_of_its_targets(real):
    answer = asking("_psirp._tcp.site-a.test", "SRV", real)
    assert [each.to_text() for each in answer.records] == ["10 5 8080 hub.site-a.test."]
    assert answer.nameserver == real.address
    assert set(answer.additional["hub.site-a.test"].addresses) == {"127.0.0.1", "::1"}
    assert answer.ttl == 200  # of the addresses, which came along


def test_a_name_that_is_not_there_and_one_without_such_records(real):
    for owner in ("no.site-a.test", "hub.site-a.test"):
        answer = asking(owner, "TXT", real)
        assert answer.records == ()
        assert answer.ttl == 7


def test_an_alias_is_followed(real):
    answer = asking("www.site-a.test", "A", real)
    assert [each.to_text() for each in answer.records] == ["127.0.0.1"]
    assert answer.owner == "www.site-a.test"
    assert answer.ttl == 100
    assert asking("www.site-a.test", "TXT", real).records == ()


def test_what_does_not_fit_into_udp_comes_by_tcp(real):
    assert len(asking("big.site-a.test", "TXT", real).records) == 40


def test_a_zone_that_is_not_the_servers(real):
    with pytest.raises(NameServerFailed, match=rf"A host\.elsewhere\.test: {real.address} refuses"):
        asking("host.elsewhere.test", "A", real)
    # An alias that leads there ends there, too.
    with pytest.raises(NameServerFailed, match=r"A host\.elsewhere\.test: "):
        asking("away.site-a.test", "A", real)


def test_a_server_that_only_refers_to_others(tmp_path):
    with (
        bind(tmp_path, {ZONE: RECORDS}) as server,
        pytest.raises(NameServerFailed, match="only refers to other servers"),
    ):
        asking("host.sub.site-a.test", "A", server)


def test_aliases_that_a_server_leaves_to_us_are_followed_to_the_end():
    async def conversation(server):
        def one_step(query, tcp):
            number = int(query.question[0].name.labels[0])
            answer = dns.message.make_response(query)
            last = number == MAX_ALIASES - 1
            kind, value = ("A", "192.0.2.1") if last else ("CNAME", f"{number + 1}.test.")
            name = f"{number}.test."
            answer.answer.append(dns.rrset.from_text(name, 90 - number, "IN", kind, value))
            return answer

        server.hook = one_step
        answer = await look_up("0.test", "A", [server.server], PATIENT)
        assert [each.to_text() for each in answer.records] == ["192.0.2.1"]
        assert answer.ttl == 90 - MAX_ALIASES + 1
        assert answer.owner == "0.test"
        with pytest.raises(NameServerFailed, match="from alias to alias"):
            await look_up("-1.test", "A", [server.server], PATIENT)

    talking(conversation)


def test_an_alias_that_the_server_followed_to_nothing_is_not_asked_for_again():
    async def conversation(server):
        server.negative_ttl = 30
        server.put("a.test", "CNAME", "b.test.", ttl=50)
        server.put("b.test", "A", "192.0.2.1")
        answer = await look_up("a.test", "TXT", [server.server], PATIENT)
        assert (answer.records, answer.ttl) == ((), 30)
        assert server.questions == [("a.test", "TXT")]

    talking(conversation)


def test_aliases_in_a_circle():
    async def conversation(server):
        server.put("a.test", "CNAME", "b.test.")
        server.put("b.test", "CNAME", "a.test.")
        with pytest.raises(NameServerFailed, match="nonsense"):
            await look_up("a.test", "A", [server.server], PATIENT)

    talking(conversation)


def test_the_next_server_is_asked_when_one_is_down_or_refuses():
    async def conversation(server):
        async with scripted() as refusing:
            refusing.hook = lambda query, tcp: _with_rcode(query, dns.rcode.REFUSED)
            server.put("a.test", "A", "192.0.2.1")
            servers = [Server("127.0.0.1", free_port()), refusing.server, server.server]
            answer = await look_up("a.test", "A", servers, PATIENT)
            assert answer.nameserver == str(server.server)
            assert len(refusing.questions) == 1

    talking(conversation)


def test_all_reasons_are_said_in_one_line():
    async def conversation(failing):
        failing.hook = lambda query, tcp: _with_rcode(query, dns.rcode.SERVFAIL)
        down, silent = Server("127.0.0.1", free_port()), None
        async with scripted() as mute:
            mute.hook = lambda query, tcp: None
            silent = mute.server
            with pytest.raises(NameServerFailed) as failure:
                await look_up("a.test", "A", [down, failing.server, silent], QUICK)
            assert len(mute.questions) == 2
        text = str(failure.value)
        assert text.startswith("no name server answers for A a.test: ")
        assert f"{down} cannot be reached (Connection refused)" in text
        assert f"{failing.server} answers SERVFAIL" in text
        assert f"{silent} gives no answer" in text

    talking(conversation)


def test_a_server_that_said_what_it_had_to_say_is_not_asked_again():
    async def conversation(server):
        server.hook = lambda query, tcp: _with_rcode(query, dns.rcode.SERVFAIL)
        with pytest.raises(NameServerFailed, match="answers SERVFAIL"):
            await look_up(
                "a.test", "A", [server.server], LookupSettings(timeout=20, attempts=3, total=60)
            )
        assert len(server.questions) == 1

    talking(conversation)


def test_a_server_that_was_silent_once_is_asked_again():
    async def conversation(server):
        server.put("a.test", "A", "192.0.2.1")
        server.hook = lambda query, tcp: None if len(server.questions) == 1 else server.usual(query)
        patient = LookupSettings(timeout=0.3, attempts=50, total=60)
        answer = await look_up("a.test", "A", [server.server], patient)
        assert len(answer.records) == 1

    talking(conversation)


def test_the_whole_question_ends_in_time():
    async def conversation(server):
        server.hook = lambda query, tcp: None
        limits = LookupSettings(timeout=0.1, attempts=10_000, total=0.5)
        async with asyncio.timeout(30):
            with pytest.raises(NameServerFailed, match="gives no answer"):
                await look_up("a.test", "A", [server.server], limits)
        assert 1 <= len(server.questions) <= 10

    talking(conversation)


def test_a_server_from_before_edns():
    async def conversation(server):
        server.put("a.test", "A", "192.0.2.1")

        def old(query, tcp):
            if query.edns >= 0:
                return _with_rcode(query, dns.rcode.FORMERR)
            return server.usual(query)

        server.hook = old
        answer = await look_up("a.test", "A", [server.server], PATIENT)
        assert len(answer.records) == 1

    talking(conversation)


def test_forged_and_broken_packets_are_not_heard():
    """The true answer comes after wrong ids, wrong questions, queries, pieces and noise."""

    async def conversation(server):
        server.put("a.test", "A", "192.0.2.1")

        def noisy(query, tcp):
            true = server.usual(query)
            wrong_id = dns.message.from_wire(true.to_wire())
            wrong_id.id ^= 1
            wrong_id.answer = [dns.rrset.from_text("a.test.", 300, "IN", "A", "198.51.100.66")]
            wrong_question = dns.message.make_response(dns.message.make_query("b.test", "A"))
            wrong_question.id = query.id
            wire = true.to_wire()
            return [
                wrong_id, wrong_question, query.to_wire(), wire[:20], b"", b"\0" * 12, true
            ]  # fmt: skip

        server.hook = noisy
        answer = await look_up("a.test", "A", [server.server], PATIENT)
        assert [each.to_text() for each in answer.records] == ["192.0.2.1"]

    talking(conversation)


@pytest.mark.parametrize("answer", [b"", b"\0\1", b"\xff" * 40], ids=["end", "piece", "noise"])
def test_tcp_that_ends_early_or_brings_noise(answer):
    async def conversation(server):
        def hook(query, tcp):
            if tcp:
                return answer
            response = dns.message.make_response(query)
            response.flags |= dns.flags.TC
            return response

        server.hook = hook
        with pytest.raises(NameServerFailed, match=r"nonsense|closed"):
            await look_up("a.test", "A", [server.server], PATIENT)

    talking(conversation)


def test_addresses_of_others_than_the_targets_are_not_taken():
    async def conversation(server):
        server.put("_x._tcp.a.test", "SRV", "0 0 80 hub.a.test.")

        def generous(query, tcp):
            answer = server.usual(query)
            for name in ("hub.a.test.", "bank.test."):
                answer.additional.append(dns.rrset.from_text(name, 30, "IN", "A", "192.0.2.1"))
            return answer

        server.hook = generous
        answer = await look_up("_x._tcp.a.test", "SRV", [server.server], PATIENT)
        assert list(answer.additional) == ["hub.a.test"]
        assert answer.ttl == 30

    talking(conversation)


def test_others_get_their_turn_during_a_flood():
    """The time-out, for one: packets that wait already are received without waiting."""

    async def conversation(server):
        server.put("a.test", "A", "192.0.2.1")
        flooded = []
        turns = 0

        def flood(query, tcp):
            flooded.append(turns)
            return [b"no answer"] * 60 + [server.usual(query)]

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        server.hook = flood
        task = asyncio.create_task(others())
        assert (await look_up("a.test", "A", [server.server], PATIENT)).records
        task.cancel()
        assert turns - flooded[0] >= 60

    talking(conversation)


def test_nothing_that_a_server_sends_breaks_it():
    """Answers with bits flipped, cut, or of nothing but noise, by UDP and TCP."""

    async def conversation(server):
        server.put("_x._tcp.a.test", "SRV", "0 0 80 hub.a.test.")
        server.put("hub.a.test", "A", "192.0.2.1")
        # The id is left, or nothing would be read any further.
        chance = random.Random(7)

        def mangled(query, tcp):
            answer = server.usual(query)
            answer.additional.append(dns.rrset.from_text("hub.a.test.", 9, "IN", "A", "192.0.2.1"))
            wire = bytearray(answer.to_wire())
            for _ in range(chance.randrange(1, 4)):
                wire[chance.randrange(2, len(wire))] = chance.randrange(256)
            if chance.random() < 0.2:
                del wire[chance.randrange(2, len(wire)) :]
            return bytes(wire)

        server.hook = mangled
        limits = LookupSettings(timeout=0.02, attempts=1, total=0.1)
        outcomes = {"answer": 0, "failure": 0}
        for _ in range(150):
            try:
                await look_up("_x._tcp.a.test", "SRV", [server.server], limits)
                outcomes["answer"] += 1
            except NameServerFailed as error:
                outcomes["failure"] += 1
                text = str(error)
                if not text.isprintable():
                    raise
        assert sum(outcomes.values()) == 150
        assert outcomes["failure"] > 0

    talking(conversation)


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=6))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_noise_from_a_server_ends_in_one_failure(packets):
    async def conversation(server):
        server.hook = lambda query, tcp: [query.to_wire()[:2] + each for each in packets]
        with pytest.raises(NameServerFailed):
            await look_up(
                "a.test", "A", [server.server], LookupSettings(timeout=0.02, attempts=1, total=0.1)
            )

    talking(conversation)


def test_a_server_by_name():
    async def conversation(server):
        server.put("a.test", "A", "192.0.2.1")
        by_name = Server("localhost", server.server.port)
        answer = await look_up("a.test", "A", [by_name, server.server], PATIENT)
        assert len(answer.records) == 1
        nowhere = Server("x" * 64, 53)
        with pytest.raises(NameServerFailed, match=r"x:53 cannot be reached \(no host name\)"):
            await look_up("a.test", "A", [nowhere], PATIENT)

    talking(conversation)


def test_a_server_by_ipv6():
    async def main():
        async with scripted("::1") as server:
            server.put("a.test", "TXT", *(f'"{number} {"x" * 200}"' for number in range(20)))
            answer = await look_up("a.test", "TXT", [server.server], PATIENT)
            assert len(answer.records) == 20
            assert answer.nameserver == f"[::1]:{server.server.port}"

    if have_ipv6():
        asyncio.run(main())
    else:
        with pytest.raises(NameServerFailed, match=r"\[::1\]:53 cannot be reached"):
            asyncio.run(look_up("a.test", "A", [Server("::1")], QUICK))


def have_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_name_that_no_message_can_hold():
    with pytest.raises(NameServerFailed, match="cannot be asked for"):
        asyncio.run(look_up("a" * 64 + ".test", "A", [Server("127.0.0.1", 1)], QUICK))


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("127.0.0.1:5300", Server("127.0.0.1", 5300)),
        ("127.0.0.1", Server("127.0.0.1", 53)),
        ("localhost:53", Server("localhost", 53)),
        ("::1", Server("::1", 53)),
        ("[::1]", Server("::1", 53)),
        ("[::1]:5300", Server("::1", 5300)),
    ],
)
def test_spellings_of_a_server(text, server):
    assert Server.parse(text) == server
    assert Server.parse(str(server)) == server


@pytest.mark.parametrize(
    "text", ["", ":53", "host:", "host:0", "host:65536", "host:x", "[::1", "[]:53", "a b", "a\n:5"]
)
def test_what_is_no_server(text):
    with pytest.raises(BootstrapError, match="is no name server: write HOST:PORT") as refused:
        Server.parse(text)
    assert str(refused.value).isprintable()


def test_the_system_has_servers_or_says_that_it_has_none():
    try:
        servers = system_servers()
    except NameServerFailed:
        return
    assert all(isinstance(each, Server) and each.port == 53 for each in servers)


def _with_rcode(query, rcode):
    answer = dns.message.make_response(query)
    answer.set_rcode(rcode)
    return answer
