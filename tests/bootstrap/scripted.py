"""A name server that says what a test wants, over UDP and TCP: also what no real one would."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

from bootstrap import Server

SOA = "ns hostmaster 1 3600 600 86400"
UDP_BYTES = 1_232


class Scripted(asyncio.DatagramProtocol):
    """Records by (owner, kind); `hook(query, tcp)` replaces the answer by a message, bytes, a list
    of them, or None for silence."""

    def __init__(self):
        self.records = {}
        self.negative_ttl = 60
        self.questions = []
        self.hook = None
        self.server = None
        self._transport = None

    def put(self, owner, kind, *rdata, ttl=300):
        self.records[(owner, kind)] = (ttl, rdata)

    def asked(self, owner, kind):
        return self.questions.count((owner, kind))

    def usual(self, query):
        """What an honest server would say: CNAMEs within its records followed, SOA if nothing."""
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.AA
        (question,) = query.question
        kind = dns.rdatatype.to_text(question.rdtype)
        owner = question.name.to_text(omit_final_dot=True).lower()
        for _ in range(20):
            if (owner, kind) in self.records:
                answer.answer.append(self._rrset(owner, kind))
                return answer
            if (owner, "CNAME") not in self.records:
                break
            answer.answer.append(self._rrset(owner, "CNAME"))
            owner = self.records[(owner, "CNAME")][1][0].removesuffix(".")
        zone = ".".join(owner.split(".")[-2:])
        if not any(name == owner or name.endswith(f".{owner}") for name, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        soa = f"{SOA} {self.negative_ttl}".replace("ns hostmaster", f"ns.{zone}. h.{zone}.")
        answer.authority.append(dns.rrset.from_text(f"{zone}.", 3600, "IN", "SOA", soa))
        return answer

    def _rrset(self, owner, kind):
        ttl, rdata = self.records[(owner, kind)]
        return dns.rrset.from_text(f"{owner}.", ttl, "IN", kind, *rdata)

    def _answers(self, wire, tcp):
        query = dns.message.from_wire(wire)
        name = query.question[0].name.to_text(omit_final_dot=True).lower()
        self.questions.append((name, dns.rdatatype.to_text(query.question[0].rdtype)))
        said = self.usual(query) if self.hook is None else self.hook(query, tcp)
        for each in said if isinstance(said, list) else [said]:
            if isinstance(each, bytes):
                yield each
            elif each is not None:
                wire = each.to_wire(max_size=65_535)
                yield wire if tcp or len(wire) <= UDP_BYTES else _truncated(each)

    def connection_made(self, transport):
        self._transport = transport

    def datagram_received(self, data, address):
        for each in self._answers(data, False):
            self._transport.sendto(each, address)

    async def tcp(self, reader, writer):
        try:
            size = int.from_bytes(await reader.readexactly(2))
            for each in self._answers(await reader.readexactly(size), True):
                writer.write(len(each).to_bytes(2) + each)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _truncated(answer):
    short = dns.message.make_response(dns.message.make_query("x.", "A"))
    short.id, short.question = answer.id, answer.question
    short.flags = answer.flags | dns.flags.TC
    return short.to_wire()


@asynccontextmanager
async def scripted(host="127.0.0.1"):
    """One that runs, with `server` to ask it."""
    server = Scripted()
    loop = asyncio.get_running_loop()
    while True:
        transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=(host, 0))
        port = transport.get_extra_info("sockname")[1]
        try:
            listener = await asyncio.start_server(server.tcp, host, port)
            break
        except OSError:  # somebody else has the port for TCP
            transport.close()
    server.server = Server(host, port)
    try:
        yield server
    finally:
        transport.close()
        listener.close()
        await listener.wait_closed()
