"""TSIG (RFC 8945): who signed a request, and signing what is answered to it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.tsig
from dns.name import Name
from dns.rdtypes.ANY.TSIG import TSIG

from bootstrap.server.reading import Malformed, Request
from bootstrap.server.settings import Key

FUDGE = 300
"""Seconds that clocks may differ, and no more, whatever a client grants itself."""
_LENGTHS = {"hmac-sha224.": 28, "hmac-sha256.": 32, "hmac-sha384.": 48, "hmac-sha512.": 64}
"""Bytes of a signature."""

Keys = Mapping[Name, dns.tsig.Key]


def keyring(keys: Iterable[Key]) -> Keys:
    """The keys by name, as dnspython wants them."""
    made = [dns.tsig.Key(key.name, key.secret, key.algorithm) for key in keys]
    return {key.name: key for key in made}


@dataclass(slots=True)
class Signature:
    """What became of a request's signature, and the means to sign the answers."""

    name: Name
    request: TSIG
    key: dns.tsig.Key | None
    """None when the answer cannot be signed, because the key or the signature was bad."""
    error: int
    """An extended rcode: BADKEY, BADSIG, BADTIME, BADTRUNC; 0 when it is good."""
    now: int
    _context: Any = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    @property
    def good(self) -> bool:
        return not self.error

    @property
    def expires(self) -> int:
        """When the request would be refused as too old."""
        return int(self.request.time_signed + min(self.request.fudge, FUDGE))

    def length(self) -> int:
        """Bytes that signing adds, at most."""
        mac = _LENGTHS.get(self.request.algorithm.to_text().lower(), 64)
        return len(self.name.to_wire() or b"") + 10 + len(self._algorithm) + 16 + mac + 6

    @property
    def _algorithm(self) -> bytes:
        return self.request.algorithm.to_wire() or b""

    def sign(self, wire: bytes) -> bytes:
        """The message with a signature; those of a series are signed in turn, each with the one
        before it."""
        late = self.error == dns.rcode.BADTIME
        other = struct.pack("!HI", self.now >> 32, self.now & 0xFFFFFFFF) if late else b""
        rdata = TSIG(  # type: ignore[no-untyped-call]
            dns.rdataclass.ANY,
            dns.rdatatype.TSIG,
            self.request.algorithm,
            # A client whose clock is wrong could not check another time than its own.
            self.request.time_signed if late or self.key is None else self.now,
            FUDGE,
            b"",
            struct.unpack_from("!H", wire)[0],
            self.error,
            other,
        )
        if self.key is not None:
            rdata, self._context = dns.tsig.sign(  # type: ignore[no-untyped-call]
                wire,
                self.key,
                rdata,
                rdata.time_signed,
                None if self._count else self.request.mac,
                self._context,
                True,
            )
        self._count += 1
        return _append(wire, self.name, rdata)


def check(request: Request, keys: Keys, now: int) -> Signature | None:
    """None for a request without a signature; raises Malformed for one that is no TSIG."""
    found = request.tsig()
    if found is None:
        return None
    assert request.signature is not None
    name, tsig = found
    key = keys.get(name)
    if tsig.error:
        raise Malformed("a request that reports an error")
    if key is None or key.algorithm != tsig.algorithm:
        return Signature(name, tsig, None, dns.rcode.BADKEY, now)
    whole = _LENGTHS[key.algorithm.to_text()]
    if not max(10, whole // 2) <= len(tsig.mac) <= whole:
        raise Malformed("a signature of a wrong length")
    if len(tsig.mac) < whole:
        return Signature(name, tsig, None, dns.rcode.BADTRUNC, now)
    try:
        # The time comes after the signature: what is not signed must not be believed.
        dns.tsig.validate(  # type: ignore[no-untyped-call]
            request.wire, key, name, tsig, tsig.time_signed, b"", request.signature.start
        )
    except dns.tsig.BadSignature:
        return Signature(name, tsig, None, dns.rcode.BADSIG, now)
    late = abs(tsig.time_signed - now) > min(tsig.fudge, FUDGE)
    return Signature(name, tsig, key, dns.rcode.BADTIME if late else 0, now)


def _append(wire: bytes, name: Name, rdata: TSIG) -> bytes:
    out = BytesIO()
    name.to_wire(out)
    data = rdata.to_wire()
    assert data is not None
    out.write(struct.pack("!HHIH", dns.rdatatype.TSIG, dns.rdataclass.ANY, 0, len(data)))
    out.write(data)
    (additional,) = struct.unpack_from("!H", wire, 10)
    return wire[:10] + struct.pack("!H", additional + 1) + wire[12:] + out.getvalue()
