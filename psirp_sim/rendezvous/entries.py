"""What client and server must agree on about a registration: its name, and its part of a digest."""

from __future__ import annotations

from blake3 import blake3

from psirp_sim.wire.rendezvous import Registration, Side

Key = tuple[Side, bytes, bytes]
"""What a registration is about: side, scope, item (or nothing: the scope itself)."""


def key_of(entry: Registration) -> Key:
    return entry.side, entry.sid, entry.rid


def fingerprint(entry: Registration) -> int:
    """Eight bytes that stand for a registration in the digest of a client's registrations."""
    text = bytes((entry.side,)) + entry.sid + entry.rid + entry.sequence.to_bytes(8)
    return int.from_bytes(blake3(text).digest(length=8))
