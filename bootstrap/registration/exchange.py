"""Signed messages to the name server that has the zones, over TCP.

TCP, because an update that is sent twice over UDP may be carried out twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.tsig

from bootstrap.errors import NameServerFailed, Refused, WrongKey
from bootstrap.registration.changes import Records
from bootstrap.registration.tsig import TsigKey


class Connection:
    """A conversation with one name server: open it, ask, close it."""

    def __init__(self, server: tuple[str, int], key: TsigKey, time_limit: float) -> None:
        """`time_limit` is for each question."""
        self.server = server
        self.key = key
        self.time_limit = time_limit
        self._keyring = key.for_dnspython()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def name(self) -> str:
        """The server as messages call it."""
        host, port = self.server
        return f"name server [{host}]:{port}" if ":" in host else f"name server {host}:{port}"

    async def __aenter__(self) -> Self:
        with self.failures():
            async with asyncio.timeout(self.time_limit):
                self._reader, self._writer = await asyncio.open_connection(*self.server)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._writer is not None
        # Nothing is waited for: whatever was sent was also answered, or has failed.
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def ask(self, message: dns.message.Message) -> dns.message.Message:
        """Send a message, signed, and return the answer, whose signature is good."""
        with self.failures():
            async with asyncio.timeout(self.time_limit):
                await self.send(message)
                answer = self.read(message, await self.receive())
        if not message.is_response(answer):
            raise NameServerFailed(f"{self.name} answered something else than was asked")
        # What was refused is refused, whoever says so; but nobody else may say that all is well.
        if not answer.had_tsig and answer.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            raise NameServerFailed(f"{self.name} answered a signed question without signature")
        return answer

    async def send(self, message: dns.message.Message) -> None:
        assert self._writer is not None
        message.use_tsig(self._keyring)
        wire = message.to_wire()
        self._writer.write(struct.pack("!H", len(wire)) + wire)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """The next message as it came."""
        assert self._reader is not None
        (length,) = struct.unpack("!H", await self._reader.readexactly(2))
        return await self._reader.readexactly(length)

    def read(self, question: dns.message.Message, wire: bytes) -> dns.message.Message:
        """A message that answers the question; its signature is checked if it has one."""
        try:
            return dns.message.from_wire(wire, keyring=self._keyring, request_mac=question.mac)
        except dns.exception.FormError:
            # So it says of a message without a signature, which may tell us why there is none.
            return dns.message.from_wire(wire)

    async def zone_of(self, domain: dns.name.Name) -> tuple[dns.name.Name, int]:
        """The DNS zone that has the domain at this server, and its serial."""
        answer = await self._authoritative(domain, dns.rdatatype.SOA)
        for rrset in (*answer.answer, *answer.authority):
            if rrset.rdtype == dns.rdatatype.SOA and domain.is_subdomain(rrset.name):
                return rrset.name, int(rrset[0].serial)
        raise self._lame(domain)

    async def records(self, name: dns.name.Name, kind: dns.rdatatype.RdataType) -> Records:
        """The records of a name as the server has them."""
        answer = await self._authoritative(name, kind)
        rrset = answer.get_rrset(answer.answer, name, dns.rdataclass.IN, kind)
        if rrset is not None:
            return Records(frozenset(rrset), rrset.ttl)
        alias = answer.get_rrset(answer.answer, name, dns.rdataclass.IN, dns.rdatatype.CNAME)
        if alias is not None:
            raise NameServerFailed(
                f"{_text(name)} is an alias (CNAME) at {self.name}, so it cannot have other"
                " records: remove it"
            )
        return Records()

    async def addresses(self, host: dns.name.Name) -> tuple[str, ...]:
        """The addresses that the server has for a host of its zones."""
        found: dict[str, None] = {}
        for kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
            answer = await self._authoritative(host, kind)
            for rrset in answer.answer:
                if rrset.rdtype == kind:
                    found |= dict.fromkeys(each.address for each in rrset)
        return tuple(found)

    async def _authoritative(
        self, name: dns.name.Name, kind: dns.rdatatype.RdataType
    ) -> dns.message.Message:
        question = dns.message.make_query(name, kind, flags=0)
        answer = await self.ask(question)
        code = answer.rcode()
        if code in (dns.rcode.REFUSED, dns.rcode.NOTAUTH):
            raise self._lame(name, f" ({dns.rcode.to_text(code)})")
        if code not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            raise NameServerFailed(
                f"{self.name} cannot answer for {_text(name)}: {dns.rcode.to_text(code)}"
            )
        if not answer.flags & dns.flags.AA:
            raise self._lame(name)
        return answer

    def _lame(self, name: dns.name.Name, how: str = "") -> NameServerFailed:
        return NameServerFailed(
            f"{self.name} does not serve {_text(name)}{how}: name the primary server of the zone"
        )

    def refused(self, what: str) -> Refused:
        """The server knows the key, and the key may not do that."""
        return Refused(
            f"{self.name} refuses {what} with the TSIG key {self.key.name}: give the key the right"
        )

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Whatever goes wrong with a server becomes one line without secrets."""
        try:
            yield
        except dns.tsig.PeerBadKey:
            raise WrongKey(
                f"{self.name} does not know the TSIG key {self.key.name} ({self.key.algorithm}):"
                " configure it there, or name the right one here"
            ) from None
        except (dns.tsig.PeerBadSignature, dns.tsig.BadSignature):
            raise WrongKey(
                f"{self.name} has another secret for the TSIG key {self.key.name}"
            ) from None
        except (dns.tsig.PeerBadTime, dns.tsig.BadTime):
            raise WrongKey(
                f"{self.name} has another time than this machine, so the TSIG key"
                f" {self.key.name} is of no use: set the clocks"
            ) from None
        except TimeoutError:
            raise NameServerFailed(
                f"{self.name} does not answer within {self.time_limit:g} s"
            ) from None
        except EOFError:
            raise NameServerFailed(f"{self.name} closed the connection") from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise NameServerFailed(f"{self.name} cannot be reached: {reason}") from None
        except dns.exception.DNSException as error:
            # Only its kind: texts of dnspython may show what it worked on.
            raise NameServerFailed(
                f"{self.name} gave an answer that makes no sense ({type(error).__name__})"
            ) from None


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True)
