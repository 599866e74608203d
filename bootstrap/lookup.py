"""One question to the name servers: over UDP, over TCP when the answer is too long for that.

Servers are asked in turn until one gives an answer that makes sense. CNAMEs are followed, also
where a server that knows only its own zones leaves that to us.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, Self

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.resolver
from dns.rdtypes.IN.SRV import SRV

from bootstrap.errors import BootstrapError, NameServerFailed
from identifiers.errors import shown

Kind = Literal["SRV", "TXT", "A", "AAAA"]

MAX_ALIASES: Final = 8
EDNS_PAYLOAD: Final = 1_232
"""Bytes of a UDP answer that no path breaks into fragments, which are easy to forge."""

# One question, recursion desired; with the additional record that says how much we take.
_HEADER: Final = struct.pack("!HHHHH", 0x0100, 1, 0, 0, 0)
_HEADER_EDNS: Final = struct.pack("!HHHHH", 0x0100, 1, 0, 0, 1)
_ANSWER, _TRUNCATED = 0x80, 0x02  # bits of the third byte
_OPT: Final = b"\0" + struct.pack("!HHIH", dns.rdatatype.OPT, EDNS_PAYLOAD, 0, 0)


class Server(NamedTuple):
    """A name server; the host is an address, or a name the system resolves."""

    host: str
    port: int = 53

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """HOST, HOST:PORT, or an IPv6 address, in brackets where a port follows."""
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]") or _is_ipv6(text):
            host, colon, port = text, "", ""
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
        bad_port = bool(colon) and not 0 < number <= 65_535
        if not host or bad_port or any(c in "[]/@ " or not c.isprintable() for c in host):
            raise BootstrapError(
                f"{shown(text)} is no name server: write HOST:PORT, such as 127.0.0.1:53"
            )
        return cls(host, number) if colon else cls(host)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def system_servers() -> tuple[Server, ...]:
    """The name servers this machine uses."""
    try:
        system = dns.resolver.Resolver()
    except dns.resolver.NoResolverConfiguration:
        system = dns.resolver.Resolver(configure=False)
    servers = tuple(Server(str(each), system.port) for each in system.nameservers)
    if not servers:
        raise NameServerFailed("this machine has no name server configured: name one to ask")
    return servers


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """Seconds for one try and for a whole question, and how often a silent server is asked."""

    timeout: float = 2.0
    attempts: int = 2
    total: float = 6.0


class Addresses(NamedTuple):
    """Addresses that came with an answer, though nobody had asked for them yet."""

    addresses: tuple[str, ...]
    ttl: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said about a name. No records: it says that there are none."""

    owner: str
    kind: Kind
    records: tuple[dns.rdata.Rdata, ...]
    ttl: int
    nameserver: str
    additional: Mapping[str, Addresses] = field(default_factory=dict)


async def look_up(
    owner: str, kind: Kind, servers: Sequence[Server], settings: LookupSettings
) -> Answer:
    """Ask; NameServerFailed when no server gives an answer that can be used."""
    try:
        name = dns.name.from_text(owner + ".")
    except dns.exception.DNSException as error:
        raise NameServerFailed(f"{shown(owner)} cannot be asked for: {error}") from None
    deadline = asyncio.get_running_loop().time() + settings.total
    ttl = None
    for _ in range(MAX_ALIASES):
        asked = await _ask(name, kind, servers, settings, deadline)
        ttl = asked.answer.ttl if ttl is None else min(ttl, asked.answer.ttl)
        if asked.alias is None:
            return replace(asked.answer, owner=owner, ttl=ttl)
        name = asked.alias
    raise NameServerFailed(f"{owner} leads from alias to alias, more than {MAX_ALIASES} times")


class _Asked(NamedTuple):
    answer: Answer
    alias: dns.name.Name | None = None
    """Where the server left off: its answer ends with an alias for this name."""


class _Unusable(Exception):
    """An answer that is none, and would be none again."""


async def _ask(
    name: dns.name.Name,
    kind: Kind,
    servers: Sequence[Server],
    settings: LookupSettings,
    deadline: float,
) -> _Asked:
    """The first answer that makes sense."""
    loop = asyncio.get_running_loop()
    reasons: dict[Server, str] = {}
    silent = list(servers)
    for _ in range(settings.attempts):
        for server in tuple(silent):
            patience = min(settings.timeout, deadline - loop.time())
            if patience <= 0:
                break
            try:
                async with asyncio.timeout(patience):
                    message = await _exchange(name, kind, server)
                return _read(message, name, kind, str(server))
            except (TimeoutError, dns.exception.Timeout):
                reasons[server] = "gives no answer"
            except OSError as error:
                reasons[server] = f"cannot be reached ({error.strerror or error})"
            except EOFError:
                reasons[server] = "closed the connection"
            except _Unusable as error:
                reasons[server] = str(error)
                silent.remove(server)
            except (dns.exception.DNSException, ValueError) as error:
                reasons[server] = f"answers nonsense ({type(error).__name__})"
    said = "; ".join(f"{server} {why}" for server, why in reasons.items())
    text = name.to_text(omit_final_dot=True)
    raise NameServerFailed(f"no name server answers for {kind} {text}: {said or 'no time left'}")


async def _exchange(name: dns.name.Name, kind: Kind, server: Server) -> dns.message.Message:
    where = await _address(server)
    message = await _send(name, kind, where, server.port, edns=True)
    if message.rcode() in (dns.rcode.FORMERR, dns.rcode.NOTIMP, dns.rcode.BADVERS):
        # A server from before EDNS.
        message = await _send(name, kind, where, server.port, edns=False)
    return message


async def _send(
    name: dns.name.Name, kind: Kind, where: str, port: int, *, edns: bool
) -> dns.message.Message:
    message = await _udp(name, kind, where, port, edns=edns)
    if message is None:
        query = dns.message.make_query(name, kind, use_edns=0 if edns else False)
        message = await dns.asyncquery.tcp(query, where, port=port)
    return message


async def _udp(
    name: dns.name.Name, kind: Kind, where: str, port: int, *, edns: bool
) -> dns.message.Message | None:
    """The answer, or None when it does not fit. Packets that are no answer are not heard.

    Written out, because dnspython takes several times as long to make a question and a socket
    for it; it reads the answer.
    """
    kind_and_class = struct.pack("!HH", dns.rdatatype.from_text(kind), dns.rdataclass.IN)
    question = name.to_digestable() + kind_and_class
    number = secrets.token_bytes(2)
    head, tail = (_HEADER_EDNS, _OPT) if edns else (_HEADER, b"")
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    # A port of its own for each question makes answers hard to forge. Connected, so that a server
    # that is down is known at once, and only the server is heard.
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.connect((where, port))
        sock.send(number + head + question + tail)
        while True:
            wire = await asyncio.get_running_loop().sock_recv(sock, 65_535)
            asked = wire[12 : 12 + len(question)].lower()
            if wire[:2] == number and asked == question and wire[2] & _ANSWER:
                if wire[2] & _TRUNCATED:
                    return None
                with suppress(dns.exception.DNSException, ValueError):
                    return dns.message.from_wire(wire)
            # Receiving need not wait: without this, a flood would keep everything else from
            # running, the time-out included.
            await asyncio.sleep(0)


async def _address(server: Server) -> str:
    try:
        return str(ipaddress.ip_address(server.host))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            server.host, server.port, type=socket.SOCK_DGRAM
        )
    except UnicodeError:  # from the codec for host names
        raise OSError(None, "no host name") from None
    return str(found[0][4][0])


def _read(message: dns.message.Message, name: dns.name.Name, kind: Kind, server: str) -> _Asked:
    """What a message amounts to; _Unusable when the server does not serve the name."""
    rcode = message.rcode()
    if rcode == dns.rcode.REFUSED:
        raise _Unusable("refuses: it serves other zones, or others than us")
    if rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        raise _Unusable(f"answers {dns.rcode.to_text(rcode)}")
    if not isinstance(message, dns.message.QueryMessage):
        raise _Unusable("answers another question")
    chain = message.resolve_chaining()
    owner = name.to_text(omit_final_dot=True)
    if chain.answer is not None:
        records = tuple(chain.answer)
        additional = _additional(message, records) if kind == "SRV" else {}
        # What came along is used with the answer, and so bounds its time.
        ttl = min([chain.minimum_ttl, *(each.ttl for each in additional.values())])
        return _Asked(Answer(owner, kind, records, ttl, server, additional))
    nothing = _Asked(Answer(owner, kind, (), chain.minimum_ttl, server))
    authority = {each.rdtype for each in message.authority}
    if rcode == dns.rcode.NXDOMAIN or dns.rdatatype.SOA in authority:
        return nothing
    if chain.canonical_name != name:
        ttl = min(each.ttl for each in chain.cnames)
        return _Asked(replace(nothing.answer, ttl=ttl), chain.canonical_name)
    if dns.rdatatype.NS in authority and not message.flags & dns.flags.AA:
        raise _Unusable("only refers to other servers: it does not serve the zone")
    return nothing


def _additional(
    message: dns.message.Message, records: Sequence[dns.rdata.Rdata]
) -> dict[str, Addresses]:
    """Addresses of the targets, and of nothing else."""
    targets = {each.target for each in records if isinstance(each, SRV)}
    found: dict[str, Addresses] = {}
    for rrset in message.additional:
        if rrset.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA) and rrset.name in targets:
            host = rrset.name.to_text(omit_final_dot=True).lower()
            before = found.get(host, Addresses((), rrset.ttl))
            addresses = tuple(each.to_text() for each in rrset)
            found[host] = Addresses(before.addresses + addresses, min(before.ttl, rrset.ttl))
    return found
