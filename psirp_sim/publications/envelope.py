"""Envelopes: making them, opening them, and whether who made one had the authority to.

A zone has Ed25519 keys (`Zone`), and what is published under its scope is signed by one of them.
What a stranger signed is refused, and so is what is unsigned in a zone that has keys; where a
zone has none, unsigned publications are taken and marked, unless settings say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import Position
from psirp_sim.ed25519 import verified
from psirp_sim.publications.errors import NotPublished
from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.publications import (
    LARGEST_METADATA,
    LONGEST_KEY,
    LONGEST_VALUE,
    MOST_METADATA,
    Header,
    digest_of,
    join,
    signed_of,
    split,
)
from psirp_sim.wire.sealing import FabricKeys

Keys = tuple[bytes, ...]
"""Ed25519 public keys of a zone: none, one, or two while one replaces the other."""


class Verdict(Enum):
    """Whether a publication was made by somebody who may."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    """Taken, in a zone without keys."""
    NO_SIGNATURE = "no_signature"
    WRONG_KEY = "wrong_key"
    WRONG_SIGNATURE = "wrong_signature"
    UNDECIDED = "undecided"
    """The keys of the zone are not known yet."""

    @property
    def good(self) -> bool:
        return self in (Verdict.SIGNED, Verdict.UNSIGNED)


class Spoiled(Exception):
    """Bytes that are not the envelope they should be: they are asked for again."""


def check_metadata(metadata: Mapping[str, str]) -> None:
    """NotPublished when it is more than an envelope holds."""
    if len(metadata) > MOST_METADATA:
        raise NotPublished(
            f"metadata has at most {MOST_METADATA} entries, the trace id among them,"
            f" not {len(metadata)}"
        )
    total = 0
    for key, value in metadata.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise NotPublished("keys and values of metadata are text")
        sizes = len(key.encode()), len(value.encode())
        if not 1 <= sizes[0] <= LONGEST_KEY or sizes[1] > LONGEST_VALUE:
            raise NotPublished(
                f"the metadata {key[:40]!r}: a key has 1 to {LONGEST_KEY} bytes and a value at"
                f" most {LONGEST_VALUE}"
            )
        total += sum(sizes)
    if total > LARGEST_METADATA:
        raise NotPublished(f"metadata has at most {LARGEST_METADATA} bytes, not {total}")


def make(
    keys: FabricKeys,
    sid: bytes,
    rid: bytes,
    position: Position,
    metadata: Mapping[str, str],
    content: bytes,
    key: Ed25519PrivateKey | None,
) -> bytes:
    """An envelope, signed when there is a key."""
    header = Header(
        sid,
        rid,
        position.publisher.raw,
        position.epoch,
        position.version,
        digest_of(metadata, content),
        dict(metadata),
    )
    if key is not None:
        proof = (key.public_key().public_bytes_raw(), key.sign(signed_of(header)))
        header = msgspec.structs.replace(header, proof=proof)
    packed = msgspec.msgpack.encode(header)
    return join(packed, keys.mark(packed), content)


def open_envelope(keys: FabricKeys, envelope: bytes) -> tuple[Header, bytes]:
    """Header and content; `Spoiled` when they are not what a node of the fabric sent."""
    try:
        header, packed, mac, content = split(envelope)
    except MalformedPacket as error:
        raise Spoiled(str(error)) from error
    if not keys.is_marked(packed, mac):
        raise Spoiled("the MAC of the envelope is not by a key of this fabric")
    if digest_of(header.metadata, content) != header.digest:
        raise Spoiled("the content is not what its digest says")
    return header, content


def marked_anew(keys: FabricKeys, envelope: bytes) -> bytes:
    """The envelope under the present key of the fabric: it may be older than that."""
    _, packed, mac, content = split(envelope)
    present = keys.mark(packed)
    return envelope if mac == present else join(packed, present, content)


def judge(header: Header, zone: Keys | None, accept_unsigned: bool) -> Verdict:
    """`zone` are the keys of the zone whose scope it is, or None while nobody knows."""
    if zone is None:
        return Verdict.UNDECIDED
    if header.proof is None:
        return Verdict.NO_SIGNATURE if zone or not accept_unsigned else Verdict.UNSIGNED
    key, signature = header.proof
    if zone and key not in zone:
        return Verdict.WRONG_KEY
    if not verified(key, signature, signed_of(header)):
        return Verdict.WRONG_SIGNATURE
    if zone:
        return Verdict.SIGNED
    # Signed by a key that nobody vouches for: as good as unsigned.
    return Verdict.UNSIGNED if accept_unsigned else Verdict.WRONG_KEY
