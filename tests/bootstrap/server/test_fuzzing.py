"""Whatever is sent, the server goes on answering: at the pure core, over UDP and over TCP."""

from __future__ import annotations

import asyncio
import socket
import struct

import dns.message
import dns.rcode
import dns.update
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bootstrap.name_servers import KEY, RECORDS, embedded
from tests.bootstrap.server.core import LINES, NOW, ZONE, Core, signed

UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]


def an_update(key=KEY):
    update = dns.update.UpdateMessage(ZONE, keyring=key.dnspython if key else None)
    update.present("news")
    update.absent("x")
    update.present("news", "A", "192.0.2.2")
    update.add("new", 60, "TXT", '"a" "b"')
    update.add("new", 60, "SRV", "0 0 80 news")
    update.replace("psph", 60, "A", "192.0.2.9")
    update.delete("ns", "AAAA")
    update.delete("child", "NS", "ns.child")
    update.add("@", 60, "SOA", "ns hostmaster 9 1 2 3 4")
    return update


def a_transfer(kind):
    request = dns.message.make_query(ZONE, kind)
    request.use_tsig(KEY.dnspython)
    return request


SEEDS = [
    dns.message.make_query(f"www.{ZONE}", "A", use_edns=0, want_dnssec=True).to_wire(),
    dns.message.make_query(f"x.child.{ZONE}", "ANY").to_wire(),
    dns.message.make_query("example.com", "NS", use_edns=0).to_wire(),
    signed(a_transfer("AXFR"), NOW),
    signed(a_transfer("IXFR"), NOW),
    signed(an_update(), NOW),
    an_update(None).to_wire(),
    dns.message.make_response(dns.message.make_query(ZONE, "SOA")).to_wire(),
]


@st.composite
def mutated(draw):
    """A valid message with some bytes changed, taken out, put in or doubled."""
    wire = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(wire) - 1)))
        match draw(st.sampled_from(["set", "cut", "insert", "remove", "double", "pointer"])):
            case "set" if wire:
                wire[at] = draw(st.sampled_from([0, 1, 0x3F, 0x40, 0x7F, 0xC0, 0xFF, 5 << 3]))
            case "cut":
                del wire[at:]
            case "insert":
                wire[at:at] = draw(st.binary(max_size=8))
            case "remove":
                del wire[at : at + draw(st.integers(1, 8))]
            case "double":
                wire[at:at] = wire[at : at + draw(st.integers(1, 40))]
            case "pointer":
                wire[at : at + 2] = struct.pack("!H", 0xC000 | draw(st.integers(0, 300)))
    return bytes(wire)


@st.composite
def claimed(draw):
    """A header that promises more than there is, and anything behind it."""
    flags = draw(st.sampled_from([0, 0x0100, 5 << 11, 4 << 11]))
    counts = draw(st.tuples(*[st.sampled_from([0, 1, 2, 65_535])] * 4))
    return struct.pack("!HHHHHH", 7, flags, *counts) + draw(st.binary(max_size=200))


messages = st.one_of(st.binary(max_size=600), claimed(), mutated())


@settings(max_examples=600, suppress_health_check=UNHURRIED)
@given(messages, st.booleans())
def test_any_message_gets_an_answer_or_none(wire, tcp):
    core = Core()
    before = core.zone
    answers = core.handle(wire, tcp)
    header = struct.unpack_from("!HH", wire) if len(wire) >= 12 else None
    if header is None or header[1] & 0x8000:
        assert answers == []
        return
    for answer in answers:
        number, flags = struct.unpack_from("!HH", answer)
        assert number == header[0]
        assert flags & 0x8000
        assert flags >> 11 & 0xF == header[1] >> 11 & 0xF
        parsed = dns.message.from_wire(answer, keyring=False)  # ours are always well-formed
        if not tcp and parsed.tsig is None:
            assert len(answer) <= 1232
    assert len(answers) == 1 or tcp
    if core.zone is not before:
        # The id and the case of a key's name are not part of what is signed.
        assert wire[2:].lower() == SEEDS[5][2:].lower(), "changed without a good signature"


@settings(max_examples=150, suppress_health_check=UNHURRIED)
@given(st.data())
def test_updates_signed_by_somebody_hostile(data):
    """Who has the key may send any records; the zone stays one."""
    core = Core()
    names = st.sampled_from([b"\0", b"\xc0\x0c", b"\4news\xc0\x0c", b"\1*\xc0\x0c", b"\1x\3com\0"])
    kinds = st.sampled_from([0, 1, 2, 5, 6, 15, 16, 28, 33, 39, 41, 46, 250, 252, 255, 65_280])
    classes = st.sampled_from([0, 1, 3, 254, 255])
    ttls = st.sampled_from([0, 0, 60, 2**32 - 1])
    bodies = st.sampled_from([b"", b"\xc0\0\2\1", b"\xc0\x0c", b"\0", b"\2ab", b"\0\0\0\0\0\1\0"])
    record = st.builds(
        lambda name, kind, rdclass, ttl, body: (
            name + struct.pack("!HHIH", kind, rdclass, ttl, len(body)) + body
        ),
        names, kinds, classes, ttls, bodies | st.binary(max_size=30),
    )  # fmt: skip
    parts = [data.draw(st.lists(record, max_size=2)), data.draw(st.lists(record, max_size=6))]
    zone = core.origin.to_wire() + b"\0\6\0\1"
    header = struct.pack("!HHHHHH", 9, 5 << 11, 1, len(parts[0]), len(parts[1]), 0)
    wire = header + zone + b"".join(parts[0]) + b"".join(parts[1])
    answers = core.handle(sign(wire))
    assert len(answers) == 1
    zone = core.zone
    assert {2, 6} <= set(zone.nodes[core.origin])
    assert zone.count == len(list(zone.records()))
    for node in zone.nodes.values():
        assert len(node) == 1 or 5 not in node
    assert core.ask("@", "SOA").answer
    assert list(core.handle(signed(a_transfer("AXFR"), NOW), tcp=True))


def sign(wire):
    """Sign raw bytes as a client would."""
    from dns.rdtypes.ANY.TSIG import TSIG

    key = KEY.dnspython
    empty = TSIG(255, 250, key.algorithm, NOW, 300, b"", struct.unpack_from("!H", wire)[0], 0, b"")
    rdata, _ = dns.tsig.sign(wire, key, empty, NOW, b"")
    body = rdata.to_wire()
    record = key.name.to_wire() + struct.pack("!HHIH", 250, 255, 0, len(body)) + body
    return wire[:10] + b"\0\1" + wire[12:] + record


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with embedded(tmp_path_factory.mktemp("fuzzed"), {ZONE: LINES, "site-b.test": RECORDS}) as one:
        yield one


def still_answers(server, ask):
    question = dns.message.make_query(f"news.{ZONE}", "A")
    assert ask(question, server.host, timeout=30, port=server.port).answer


@settings(max_examples=30, suppress_health_check=UNHURRIED)
@given(st.lists(messages, max_size=10))
def test_over_udp_it_goes_on_answering(server, wires):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((server.host, server.port))
        for wire in wires:
            client.send(wire)
    still_answers(server, dns.query.udp)


@settings(max_examples=30, suppress_health_check=UNHURRIED)
@given(st.lists(st.tuples(messages, st.booleans()), max_size=6), st.binary(max_size=3))
def test_over_tcp_it_goes_on_answering(server, wires, rest):
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        try:
            for wire, honest in wires:
                client.sendall(struct.pack("!H", len(wire) if honest else len(wire) // 2) + wire)
            client.sendall(rest)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65_536):
                pass
        except TimeoutError:
            raise  # it must not hang
        except OSError:
            pass  # but it may have enough of us
    still_answers(server, dns.query.tcp)


def test_no_message_led_to_a_fault(tmp_path, caplog):
    """At the edge a fault would be logged and survived; there must be none to survive."""
    from tests.bootstrap.server.served import run, served

    async def main():
        async with served(tmp_path) as server:
            loop = asyncio.get_running_loop()
            for seed in SEEDS:
                for at in range(len(seed)):
                    for value in (0, 0xFF, 0xC0, seed[at] ^ 1):
                        wire = seed[:at] + bytes([value]) + seed[at + 1 :]
                        server.datagram(wire, ("127.0.0.1", 9), Unsent())
                    server.datagram(seed[:at], ("127.0.0.1", 9), Unsent())
                await asyncio.sleep(0)
            assert loop.is_running()
            assert server.counters["other", "fault"] == 0

    class Unsent:
        def send(self, message, peer):
            assert len(message) <= 1232

    run(main())
    assert "server.failed" not in caplog.text
