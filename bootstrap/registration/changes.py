"""Records of a name as they are, and a change of them, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import dns.name
import dns.rdata
import dns.rdatatype


class Records(NamedTuple):
    """All records of one name and type; the TTL is theirs together."""

    rdatas: frozenset[dns.rdata.Rdata] = frozenset()
    ttl: int | None = None


NONE = Records()


class Record(NamedTuple):
    """One record of a name."""

    name: dns.name.Name
    rdata: dns.rdata.Rdata


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be removed and added; all of it or nothing."""

    added: tuple[Record, ...] = ()
    removed: tuple[Record, ...] = ()
    ttl: int = 0
    """Of what is added."""
    expected: tuple[Record, ...] = ()
    """Nothing is changed unless these are all records of their names and types."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)
