"""Envelopes: there and back, spoiled ones, and who may make them."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from identifiers import Position, PublisherId
from psirp_sim.publications.envelope import (
    Spoiled,
    Verdict,
    check_metadata,
    judge,
    make,
    open_envelope,
)
from psirp_sim.wire.publications import (
    LARGEST,
    LARGEST_ENVELOPE,
    LARGEST_METADATA,
    LONGEST_KEY,
    LONGEST_VALUE,
    MOST_METADATA,
    Header,
    digest_of,
    join,
    split,
)
from psirp_sim.wire.sealing import FabricKeys

KEYS = FabricKeys("a secret")
SID, RID = bytes(range(32)), bytes(range(32, 64))
POSITION = Position(PublisherId(bytes(range(16))), 3, 17)
METADATA = {"topic": "http://a.test/", "title": "Grüße"}


def private(number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


def public(number: int) -> bytes:
    return private(number).public_key().public_bytes_raw()


def made(key: int | None = None, content: bytes = b"content", keys: FabricKeys = KEYS) -> bytes:
    signer = None if key is None else private(key)
    return make(keys, SID, RID, POSITION, METADATA, content, signer)


def header_of(key: int | None) -> Header:
    return open_envelope(KEYS, made(key))[0]


# There and back


@pytest.mark.parametrize("key", [None, 1])
def test_there_and_back(key):
    header, content = open_envelope(KEYS, made(key))
    assert content == b"content"
    position = Position(PublisherId(header.publisher), header.epoch, header.version)
    assert (header.sid, header.rid, position) == (SID, RID, POSITION)
    assert header.metadata == METADATA
    assert (header.proof is None) == (key is None)


@given(
    st.dictionaries(st.text(min_size=1, max_size=16), st.text(max_size=80), max_size=8),
    st.binary(max_size=1_000),
)
def test_any_metadata_and_content(metadata, content):
    check_metadata(metadata)
    header, read = open_envelope(KEYS, make(KEYS, SID, RID, POSITION, metadata, content, None))
    assert (header.metadata, read) == (metadata, content)


def test_the_same_is_made_again():
    assert made(1) == made(1)


# Spoiled


@pytest.mark.parametrize("key", [None, 1])
def test_any_change_of_a_bit_is_noticed(key):
    envelope = made(key)
    for position in range(len(envelope)):
        for bit in (position % 8, 7):
            changed = bytearray(envelope)
            changed[position] ^= 1 << bit
            with pytest.raises(Spoiled):
                open_envelope(KEYS, bytes(changed))


def test_what_is_cut_off_or_too_long_is_noticed():
    envelope = made()
    for length in range(len(envelope)):
        with pytest.raises(Spoiled):
            open_envelope(KEYS, envelope[:length])
    with pytest.raises(Spoiled, match="digest"):
        open_envelope(KEYS, envelope + b"x")


def test_the_content_of_another_version():
    ours, theirs = made(), made(content=b"CONTENT")
    _, packed, mac, _ = split(ours)
    with pytest.raises(Spoiled, match="digest"):
        open_envelope(KEYS, join(packed, mac, split(theirs)[3]))


def test_the_metadata_of_another_version():
    """Even a node of the fabric cannot change them under a signature."""
    header, _, _, content = split(made(1))
    packed = msgspec.msgpack.encode(msgspec.structs.replace(header, metadata={"topic": "other"}))
    with pytest.raises(Spoiled, match="digest"):
        open_envelope(KEYS, join(packed, KEYS.mark(packed), content))


def test_another_fabric():
    with pytest.raises(Spoiled, match="MAC"):
        open_envelope(FabricKeys("another secret"), made())


def test_two_fabric_keys_are_valid_while_one_replaces_the_other():
    old, both, new = FabricKeys("old"), FabricKeys("new", "old"), FabricKeys("new")
    assert open_envelope(both, made(keys=old))
    assert open_envelope(new, made(keys=both))
    with pytest.raises(Spoiled, match="MAC"):
        open_envelope(new, made(keys=old))


@given(st.binary(max_size=200))
def test_random_bytes_are_spoiled(data):
    with pytest.raises(Spoiled):
        open_envelope(KEYS, data)


# Who may

ZONE, OTHER, THIRD = public(1), public(2), public(3)


@pytest.mark.parametrize(
    ("key", "zone", "accept_unsigned", "verdict"),
    [
        (None, None, True, Verdict.UNDECIDED),
        (None, None, False, Verdict.UNDECIDED),
        (1, None, True, Verdict.UNDECIDED),
        (None, (), True, Verdict.UNSIGNED),
        (None, (), False, Verdict.NO_SIGNATURE),
        (1, (), True, Verdict.UNSIGNED),
        (1, (), False, Verdict.WRONG_KEY),
        (None, (ZONE,), True, Verdict.NO_SIGNATURE),
        (None, (ZONE,), False, Verdict.NO_SIGNATURE),
        (1, (ZONE,), True, Verdict.SIGNED),
        (1, (ZONE,), False, Verdict.SIGNED),
        (1, (OTHER,), True, Verdict.WRONG_KEY),
        (1, (OTHER,), False, Verdict.WRONG_KEY),
        (1, (ZONE, OTHER), True, Verdict.SIGNED),
        (2, (ZONE, OTHER), True, Verdict.SIGNED),
        (3, (ZONE, OTHER), True, Verdict.WRONG_KEY),
        (None, (ZONE, OTHER), True, Verdict.NO_SIGNATURE),
    ],
)
def test_who_may_publish(key, zone, accept_unsigned, verdict):
    assert judge(header_of(key), zone, accept_unsigned) is verdict


@pytest.mark.parametrize("accept_unsigned", [True, False])
@pytest.mark.parametrize(
    ("zone", "verdict"),
    [
        ((ZONE,), Verdict.WRONG_SIGNATURE),
        ((OTHER, ZONE), Verdict.WRONG_SIGNATURE),
        ((), Verdict.WRONG_SIGNATURE),
        ((OTHER,), Verdict.WRONG_KEY),
        (None, Verdict.UNDECIDED),
    ],
)
@pytest.mark.parametrize(
    "changed",
    [
        {"sid": RID},
        {"rid": SID},
        {"publisher": bytes(16)},
        {"epoch": 4},
        {"version": 18},
        {"digest": digest_of({}, b"other")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_signature_is_good_for_one_publication_only(changed, zone, verdict, accept_unsigned):
    header = msgspec.structs.replace(header_of(1), **changed)
    assert judge(header, zone, accept_unsigned) is verdict


def test_somebody_else_who_claims_the_key_of_the_zone():
    signature = header_of(2).proof[1]
    claimed = msgspec.structs.replace(header_of(1), proof=(ZONE, signature))
    assert judge(claimed, (ZONE,), True) is Verdict.WRONG_SIGNATURE
    assert judge(claimed, (ZONE, OTHER), True) is Verdict.WRONG_SIGNATURE


def test_a_key_that_anyone_can_sign_for_proves_nothing():
    """All zeros is a point of small order, and no key; nor is what lies on no curve."""
    for weak in (bytes(32), bytes([1]) + bytes(31), b"\x02" + bytes(31)):
        proof = (weak, weak + bytes(32))
        header = msgspec.structs.replace(header_of(None), proof=proof)
        assert judge(header, (weak,), True) is Verdict.WRONG_SIGNATURE
        assert judge(header, (), True) is Verdict.WRONG_SIGNATURE


def test_what_is_taken():
    assert {verdict for verdict in Verdict if verdict.good} == {Verdict.SIGNED, Verdict.UNSIGNED}


# Metadata

EUROS = "€" * (LONGEST_VALUE // 3)
"""Three bytes each."""


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"k" * LONGEST_KEY: "v" * LONGEST_VALUE},
        {"k": EUROS},
        {f"{number:02}": "" for number in range(MOST_METADATA)},
        {f"{number}": "v" * (LONGEST_VALUE - 1) for number in range(LARGEST_METADATA // 4_096)},
    ],
    ids=len,
)
def test_metadata_at_the_bounds(metadata):
    check_metadata(metadata)
    header, _ = open_envelope(KEYS, make(KEYS, SID, RID, POSITION, metadata, b"", private(1)))
    assert header.metadata == metadata


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({f"{number:02}": "" for number in range(MOST_METADATA + 1)}, "the trace id .*not 65"),
        ({"": "v"}, "a key has 1 to 64 bytes"),
        ({"k" * (LONGEST_KEY + 1): "v"}, "a key has 1 to 64 bytes"),
        ({"€" * (LONGEST_KEY // 3 + 1): "v"}, "a key has 1 to 64 bytes"),
        ({"k": "v" * (LONGEST_VALUE + 1)}, "a value at most 4096"),
        ({"k": EUROS + "€"}, "a value at most 4096"),
        ({f"{number}": "v" * 4_000 for number in range(5)}, "at most 16384 bytes, not 20005"),
        ({"k": 1}, "are text"),
        ({1: "v"}, "are text"),
        ({"k": b"v"}, "are text"),
        ({"k": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_metadata_out_of_bounds(metadata, message):
    with pytest.raises(ValueError, match=message):
        check_metadata(metadata)


def test_the_largest_publication_fits_into_the_largest_envelope():
    metadata = {f"{number:064}": "v" * (LARGEST_METADATA // 64 - 64) for number in range(64)}
    check_metadata(metadata)
    position = Position(PublisherId(bytes(16)), 2**64 - 1, 2**64 - 1)
    envelope = make(KEYS, SID, RID, position, metadata, b"", private(1))
    assert LARGEST + len(envelope) <= LARGEST_ENVELOPE
