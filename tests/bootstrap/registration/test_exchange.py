"""Name servers that misbehave: each is one line, and none can do harm."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import asynccontextmanager

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from bootstrap.errors import BootstrapError, NameServerFailed, Refused, WrongKey
from bootstrap.registration import Registrar, RegistrarSettings, TsigKey, learn_hosts, transfer
from bootstrap.registration.backoff import Backoff
from bootstrap.registration.changes import Change, Record
from bootstrap.registration.exchange import Connection
from bootstrap.registration.planning import service_rdata
from bootstrap.registration.settings import Target
from bootstrap.registration.updating import update
from tests.bootstrap.registering import Lines, run

KEY = TsigKey("psph-key", b"a secret that nobody else knows")
ZONE = dns.name.from_text("site-a.test.")
SOA = "ns.site-a.test. hostmaster.site-a.test. 7 3600 600 86400 5"


@asynccontextmanager
async def serving(answer):
    """A server on loopback: `answer` gets each question and returns what to write, or None."""

    async def converse(reader, writer):
        try:
            while True:
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                wire = await reader.readexactly(length)
                reply = answer(wire)
                if reply is None:
                    return
                writer.write(reply)
        except (EOFError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()


def framed(wire):
    return struct.pack("!H", len(wire)) + wire


def replying(change, *, key=KEY, signed=True):
    """An answer that `change` may alter, signed as a good server signs."""

    def answer(wire):
        question = dns.message.from_wire(wire, keyring=KEY.for_dnspython())
        reply = dns.message.make_response(question)
        reply.flags |= dns.flags.AA
        change(reply)
        if signed:
            reply.use_tsig(key.for_dnspython(), original_id=reply.id)
            reply.request_mac = question.mac
        else:
            reply.tsig = reply.keyring = None
        return framed(reply.to_wire())

    return answer


def good(reply):
    reply.answer.append(dns.rrset.from_text(ZONE, 300, "IN", "SOA", SOA))


def coded(code):
    return lambda reply: reply.set_rcode(code)


def no_authority(reply):
    good(reply)
    reply.flags &= ~dns.flags.AA


def other_question(reply):
    good(reply)
    reply.question[0] = dns.rrset.RRset(dns.name.from_text("other.test."), 1, dns.rdatatype.SOA)


def other_id(wire):
    reply = replying(good)(wire)[2:]
    return framed(bytes([reply[0] ^ 1]) + reply[1:])


OTHER_KEY = TsigKey("psph-key", b"another secret of good length")
MISBEHAVING = [
    (replying(good, signed=False), NameServerFailed, "without signature"),
    (replying(good, key=OTHER_KEY), WrongKey, "another secret for the TSIG key psph-key"),
    (replying(no_authority), NameServerFailed, "does not serve site-a.test"),
    (replying(lambda reply: None), NameServerFailed, "does not serve site-a.test"),
    (replying(coded(dns.rcode.REFUSED)), NameServerFailed, "site-a.test (REFUSED)"),
    (replying(coded(dns.rcode.REFUSED), signed=False), NameServerFailed, "(REFUSED)"),
    (replying(coded(dns.rcode.SERVFAIL)), NameServerFailed, "SERVFAIL"),
    (replying(other_question), NameServerFailed, "something else than was asked"),
    (other_id, NameServerFailed, "something else than was asked"),
    (lambda wire: framed(b""), NameServerFailed, "makes no sense"),
    (lambda wire: framed(b"\xff" * 40), NameServerFailed, "makes no sense"),
    (lambda wire: framed(wire), WrongKey, "another secret"),
    (lambda wire: framed(wire[:-3]), NameServerFailed, "makes no sense"),
    (lambda wire: b"\0\1", NameServerFailed, "does not answer within 0.5 s"),
    (lambda wire: b"", NameServerFailed, "does not answer within 0.5 s"),
    (lambda wire: None, NameServerFailed, "closed the connection"),
]


@pytest.mark.parametrize(("answer", "kind", "said"), MISBEHAVING)
def test_a_server_that_misbehaves_is_one_line(answer, kind, said):
    async def main():
        limit = 0.5 if "within 0.5 s" in said else 30
        async with serving(answer) as address:
            with pytest.raises(kind) as caught:
                async with Connection(address, KEY, limit) as connection:
                    await connection.zone_of(ZONE)
            text = str(caught.value)
            assert said in text
            assert text.startswith("name server 127.0.0.1:")
            assert "\n" not in text
            assert KEY.text not in text

    run(main())


def test_a_good_one_is_believed():
    async def main():
        async with (
            serving(replying(good)) as address,
            Connection(address, KEY, 30) as connection,
        ):
            assert await connection.zone_of(ZONE) == (ZONE, 7)
            # The same connection serves for more than one question.
            assert await connection.zone_of(ZONE) == (ZONE, 7)

    run(main())


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (dns.rcode.REFUSED, Refused, "refuses an update of site-a.test with the TSIG key psph-key"),
        (dns.rcode.NOTAUTH, NameServerFailed, "is not the primary server of site-a.test (NOTAUTH)"),
        (dns.rcode.NOTZONE, NameServerFailed, "is not the primary server"),
        (dns.rcode.NOTIMP, NameServerFailed, "does no dynamic updates"),
        (dns.rcode.SERVFAIL, NameServerFailed, "did not carry out an update"),
        (dns.rcode.NXRRSET, BootstrapError, "changed by somebody else"),
    ],
)
def test_how_an_update_can_fail(code, kind, said):
    async def main():
        rdata = service_rdata(0, 0, Target("psph1.site-a.test", 80))
        change = Change(added=(Record(ZONE, rdata),), ttl=5)
        async with (
            serving(replying(coded(code))) as address,
            Connection(address, KEY, 30) as connection,
        ):
            with pytest.raises(kind) as caught:
                await update(connection, ZONE, change)
        assert said in str(caught.value)

    run(main())


def test_a_clock_that_differs_is_said():
    def late(wire):
        question = dns.message.from_wire(wire, keyring=KEY.for_dnspython())
        reply = dns.message.make_response(question)
        reply.set_rcode(dns.rcode.NOTAUTH)
        reply.use_tsig(KEY.for_dnspython(), original_id=reply.id, tsig_error=dns.rcode.BADTIME)
        reply.request_mac = question.mac
        return framed(reply.to_wire())

    async def main():
        async with serving(late) as address, Connection(address, KEY, 30) as connection:
            with pytest.raises(WrongKey, match="set the clocks"):
                await connection.zone_of(ZONE)

    run(main())


def test_an_update_that_is_taken_and_not_carried_out():
    """By its policy, a server may ignore parts of an update; registered is what is shown."""

    def change(reply):
        if reply.opcode() == 0 and reply.question[0].rdtype == dns.rdatatype.SOA:
            good(reply)

    async def main():
        async with serving(replying(change)) as address:
            settings = RegistrarSettings(
                address, KEY, Target("psph1.site-a.test", 80), ("site-a.test",)
            )
            async with Registrar(settings) as registrar:
                await registrar.settled()
                state = registrar.state["site-a.test"]
                assert "took an update of site-a.test and does not show it" in state.trouble
                assert not state.registered

    run(main())


def test_a_server_that_says_nothing_holds_up_nobody():
    async def main():
        lines = Lines()
        async with serving(lambda wire: b"") as address:
            settings = RegistrarSettings(
                address, KEY, Target("psph1.site-a.test", 80), ("site-a.test",),
                learn=("site-b.test",), time_limit=60, leave_limit=0.2, take_over_after=5,
            )  # fmt: skip
            begun = time.monotonic()
            async with Registrar(settings, log=lines.log) as registrar:
                assert registrar.state["site-a.test"].trouble is None
                assert not registrar.state["site-a.test"].registered
                await asyncio.sleep(0.1)
            # Nothing was waited for that takes 60 s.
            assert time.monotonic() - begun < 30

    run(main())


def test_a_fault_of_our_own_does_not_end_the_attempts(monkeypatch):
    async def main():
        lines = Lines()
        monkeypatch.setattr(Connection, "zone_of", lambda *_: 1 / 0)
        async with serving(replying(good)) as address:
            settings = RegistrarSettings(
                address, KEY, Target("psph1.site-a.test", 80), ("site-a.test",),
                backoff=Backoff(0.01, 1, 0.01),
            )  # fmt: skip
            async with Registrar(settings, log=lines.log) as registrar:
                for _ in range(3_000):
                    if registrar.state["site-a.test"].failures > 2:
                        break
                    await asyncio.sleep(0.01)
                state = registrar.state["site-a.test"]
                assert state.failures > 2
                assert state.trouble == "a fault of the registrar: ZeroDivisionError"

    run(main())


def transferring(messages):
    """A server that answers a transfer with these lists of records, the first and last signed."""

    def answer(wire):
        question = dns.message.from_wire(wire, keyring=KEY.for_dnspython())
        context, written = None, b""
        for records in messages:
            reply = dns.message.make_response(question)
            reply.flags |= dns.flags.AA
            reply.answer = [dns.rrset.from_text(*each) for each in records]
            reply.use_tsig(KEY.for_dnspython(), original_id=reply.id)
            reply.request_mac = question.mac
            written += framed(reply.to_wire(multi=True, tsig_ctx=context))
            context = reply.tsig_ctx
        return written

    return answer


START = (ZONE, 300, "IN", "SOA", SOA)


def host(number):
    return (f"host{number}.site-a.test.", 300, "IN", "A", "127.0.0.1")


def test_a_transfer_in_several_messages():
    async def main():
        messages = [[START, host(1)], [host(2), host(3)], [host(4), START]]
        async with serving(transferring(messages)) as address:
            found = await learn_hosts(address, KEY, "site-a.test")
        assert found == tuple(f"host{number}.site-a.test" for number in (1, 2, 3, 4))

    run(main())


def test_a_transfer_has_an_end(monkeypatch):
    monkeypatch.setattr(transfer, "MOST_RECORDS", 50)

    async def main():
        messages = [[START], *([host(number)] for number in range(100)), [START]]
        async with serving(transferring(messages)) as address:
            with pytest.raises(NameServerFailed, match="at most 50 records"):
                await learn_hosts(address, KEY, "site-a.test")

    run(main())


def test_a_transfer_that_stops_in_the_middle():
    async def main():
        async with serving(transferring([[START, host(1)]])) as address:
            with pytest.raises(NameServerFailed, match="does not answer within"):
                await learn_hosts(address, KEY, "site-a.test", time_limit=0.3)

    run(main())
