"""All that the server knows, and what it does with a message: the rules in one place, without I/O.

An update is decided here and adopted only when it was kept (`keeping`): whoever is told that it
was done finds it done after the next start, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import dns.exception
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
from dns.name import Name
from dns.rdatatype import ANY, AXFR, IXFR

from bootstrap.server import answering, signing, transferring, updating
from bootstrap.server.reading import QUERY, UPDATE, Malformed, Request, read, read_header
from bootstrap.server.settings import Limits, ServerSettings
from bootstrap.server.signing import Signature
from bootstrap.server.updating import Change, Denied
from bootstrap.server.writing import LARGEST_TCP, Response, udp_limit, write, write_error
from bootstrap.server.zone import Zone

_IN, _ANY_CLASS = 1, 255
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back."""

    messages: Iterable[bytes]
    rcode: int
    kind: str
    """question, update, transfer, or other: what it is counted as."""
    said: str = ""
    """For the log, where the operator wants to know."""
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """An update whose signature is good and whose key may change the zone; not yet decided."""

    request: Request
    origin: Name
    response: Response
    signature: Signature
    limit: int

    @property
    def key(self) -> str:
        return self.signature.name.to_text(True)


@dataclass(frozen=True, slots=True)
class Hosted:
    """A zone's latest version, and whose keys open it."""

    zone: Zone
    transfer: frozenset[Name]
    update: frozenset[Name]


class Authority:
    """The zones and the keys."""

    def __init__(self, settings: ServerSettings, zones: Iterable[Zone]) -> None:
        """`zones` in the order of the settings."""
        self._limits: Limits = settings.limits
        self._keys = signing.keyring(settings.keys)
        self.hosted: dict[Name, Hosted] = {}
        for each, zone in zip(settings.zones, zones, strict=True):
            self.hosted[zone.origin] = Hosted(zone, _names(each.transfer), _names(each.update))
        self._answered: dict[bytes, tuple[int, int]] = {}
        """Signatures of updates that were decided, how, and until when they could come again."""

    def receive(self, wire: bytes, *, tcp: bool, now: float) -> Reply | Update | None:
        """What to do about a message; None is to send nothing."""
        header = read_header(wire)
        if header is None:
            return None
        if header.opcode not in (QUERY, UPDATE):
            return Reply([write_error(header, dns.rcode.NOTIMP)], dns.rcode.NOTIMP, "other")
        kind = "update" if header.opcode == UPDATE else "question"
        try:
            request = read(wire, header)
            signature = signing.check(request, self._keys, int(now))
            return self._decide(request, signature, kind, tcp)
        except Malformed:
            return Reply([write_error(header, dns.rcode.FORMERR)], dns.rcode.FORMERR, kind)

    def truncated(self, wire: bytes) -> bytes | None:
        """An empty answer that says "ask over TCP"; smaller than the question is."""
        header = read_header(wire)
        if header is None or header.opcode != QUERY:
            return None
        short = bytearray(write_error(header, 0))
        short[2] |= 2
        return bytes(short)

    def _decide(
        self, request: Request, signature: Signature | None, kind: str, tcp: bool
    ) -> Reply | Update:
        response = Response(request.header, request.question, request.edns)
        limit = LARGEST_TCP if tcp else udp_limit(request.edns)
        if signature is not None and not signature.good:
            error = dns.rcode.to_text(dns.rcode.Rcode.make(signature.error), tsig=True)
            said = f"{kind} signed by the key {signature.name.to_text(True)}: {error}"
            response.rcode = dns.rcode.NOTAUTH
            return _reply(response, signature, limit, kind, said)
        if request.edns is not None and request.edns.version:
            response.rcode = dns.rcode.BADVERS
            return _reply(response, signature, limit, kind)
        if kind == "update":
            return self._admit(request, response, signature, limit)
        if request.question.kind in (AXFR, IXFR):
            return self._transfer(request, response, signature, limit, tcp)
        return self._answer(request, response, signature, limit)

    def _answer(
        self, request: Request, response: Response, signature: Signature | None, limit: int
    ) -> Reply:
        question = request.question
        kind = dns.rdatatype.RdataType.make(question.kind)
        hosted = self._zone_of(question.name) if question.rdclass in (_IN, _ANY_CLASS) else None
        if dns.rdatatype.is_metatype(kind) and kind != ANY:
            response.rcode = dns.rcode.NOTIMP
        elif hosted is None:
            response.rcode = dns.rcode.REFUSED
        else:
            answering.answer(hosted.zone, response)
        return _reply(response, signature, limit, "question")

    def _zone_of(self, name: Name) -> Hosted | None:
        """The zone that is closest above a name."""
        while name not in self.hosted:
            if name == dns.name.root:
                return None
            name = name.parent()
        return self.hosted[name]

    def _transfer(
        self,
        request: Request,
        response: Response,
        signature: Signature | None,
        limit: int,
        tcp: bool,
    ) -> Reply:
        question = request.question
        hosted = self.hosted.get(question.name) if question.rdclass == _IN else None
        who = "nobody" if signature is None else f"the key {signature.name.to_text(True)}"
        said = f"transfer of {question.name.to_text(True)} to {who}"
        if hosted is None:
            response.rcode = dns.rcode.NOTAUTH
        elif signature is None or signature.name not in hosted.transfer:
            response.rcode = dns.rcode.REFUSED
        elif not tcp and question.kind == AXFR:
            response.rcode = dns.rcode.FORMERR
        elif question.kind == IXFR and (transferring.is_current(hosted.zone, request) or not tcp):
            answering.serial_only(hosted.zone, response)
        else:
            said += f", serial {hosted.zone.serial}"
            messages = _signed(transferring.transfer(hosted.zone, response), signature)
            return Reply(messages, dns.rcode.NOERROR, "transfer", said, True)
        if response.rcode:
            said += f": {rcode_text(response.rcode)}"
        return _reply(response, signature, limit, "transfer", said)

    def _admit(
        self, request: Request, response: Response, signature: Signature | None, limit: int
    ) -> Reply | Update:
        """RFC 2136 3.1 and 3.3; rights come before prerequisites, which would tell strangers what
        is in the zone."""
        zone = request.question
        hosted = self.hosted.get(zone.name) if zone.rdclass == _IN else None
        who = "nobody" if signature is None else f"the key {signature.name.to_text(True)}"
        said = f"update of {zone.name.to_text(True)} by {who}"
        if hosted is None:
            response.rcode = dns.rcode.NOTAUTH
        elif signature is None or signature.name not in hosted.update:
            response.rcode = dns.rcode.REFUSED
        else:
            return Update(request, hosted.zone.origin, response, signature, limit)
        said += f": {rcode_text(response.rcode)}"
        return _reply(response, signature, limit, "update", said)

    def decide(self, update: Update) -> Change | None:
        """What an update does to the zone as it is now; raises Denied or Malformed.

        The same message again, by a client that missed the answer or by somebody who listened,
        changes nothing: it is answered as the first time.
        """
        known = self._answered.get(update.signature.request.mac)
        if known is not None and known[1] >= update.signature.now:
            if known[0]:
                raise Denied(known[0], "sent again")
            return None
        zone = self.hosted[update.origin].zone
        return updating.decide(zone, update.request, self._limits.records)

    def adopt(self, change: Change) -> None:
        """From now on the zone is this; it has been kept."""
        old = self.hosted[change.after.origin]
        self.hosted[change.after.origin] = Hosted(change.after, old.transfer, old.update)

    def acknowledge(self, update: Update, rcode: int) -> bytes:
        """What is said to the client when an update was decided, and kept."""
        if rcode != dns.rcode.SERVFAIL:
            self._remember(update, rcode)
        update.response.rcode = rcode
        (message,) = _reply(update.response, update.signature, update.limit, "update").messages
        return message

    def _remember(self, update: Update, rcode: int) -> None:
        if len(self._answered) >= _MOST_REMEMBERED:
            now = update.signature.now
            for mac, (_, expires) in list(self._answered.items()):
                if expires < now:
                    del self._answered[mac]
            if len(self._answered) >= _MOST_REMEMBERED:
                del self._answered[next(iter(self._answered))]
        mac = update.signature.request.mac
        self._answered.setdefault(mac, (rcode, update.signature.expires))


def rcode_text(rcode: int) -> str:
    """NXDOMAIN and the like."""
    return dns.rcode.to_text(dns.rcode.Rcode.make(rcode))


def _names(names: Iterable[str]) -> frozenset[Name]:
    return frozenset(dns.name.from_text(name) for name in names)


def _reply(
    response: Response, signature: Signature | None, limit: int, kind: str, said: str = ""
) -> Reply:
    if signature is None:
        return Reply([write(response, limit)], response.rcode, kind, said)
    wire = signature.sign(write(response, limit - signature.length()))
    return Reply([wire], response.rcode, kind, said, True)


def _signed(messages: Iterator[bytes], signature: Signature) -> Iterator[bytes]:
    for message in messages:
        yield signature.sign(message)
