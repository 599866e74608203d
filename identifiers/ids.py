"""Scope and rendezvous ids: their types, and how they are derived from zone and topic.

An id is 32 bytes of BLAKE3 in derive-key mode, with a context of its own for every use, so that
ids made for different uses never meet.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from blake3 import blake3

from identifiers.errors import InvalidId, shown


@dataclass(frozen=True, slots=True, repr=False)
class FixedBytes:
    """So many bytes of a certain kind. Kinds are never equal, whatever their bytes."""

    SIZE: ClassVar[int]

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != self.SIZE:
            raise InvalidId(
                f"a {type(self).__name__} has {self.SIZE} bytes, not {len(self.raw)}: pass them all"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of str()."""
        if len(text) != 2 * cls.SIZE or not re.fullmatch("[0-9a-f]+", text):
            raise InvalidId(
                f"{shown(text)} is not a {cls.__name__}: "
                f"write {2 * cls.SIZE} lower-case hexadecimal digits"
            )
        return cls(bytes.fromhex(text))

    def __bytes__(self) -> bytes:
        return self.raw

    def __str__(self) -> str:
        return self.raw.hex()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __hash__(self) -> int:
        return hash((type(self), self.raw))


class ScopeId(FixedBytes):
    """SId: what all topics of a zone share."""

    __slots__ = ()
    SIZE = 32


class RendezvousId(FixedBytes):
    """RId: one topic within a scope."""

    __slots__ = ()
    SIZE = 32


def scope_id(zone: str) -> ScopeId:
    """The SId of all topics of a zone."""
    return ScopeId(_derive("psph 1 scope", zone.encode()))


def rendezvous_id(sid: ScopeId, canonical: str) -> RendezvousId:
    """The RId of a topic in canonical form, within the scope of its zone."""
    return RendezvousId(_derive("psph 1 rendezvous", sid.raw + canonical.encode()))


def channel_scope_id(label: str) -> ScopeId:
    """The SId of the zone channels of all zones with this label, whatever their suffix."""
    return ScopeId(_derive("psph 1 zone channel scope", label.encode()))


def channel_item_id(suffix: str) -> RendezvousId:
    """The RId of a zone channel; `suffix` is the public suffix, such as "co.uk"."""
    return RendezvousId(_derive("psph 1 zone channel item", b"." + suffix.encode()))


def members_item_id(sid: ScopeId) -> RendezvousId:
    """The RId, within a zone's own scope, at which the proxies of the zone know each other."""
    return RendezvousId(_derive("psph 1 zone members", sid.raw))


def _derive(context: str, data: bytes) -> bytes:
    return blake3(data, derive_key_context=context).digest()
