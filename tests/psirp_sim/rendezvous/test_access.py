"""Access rules: who gets in, and that a proof fits one request of one client only."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from psirp_sim.ed25519 import _WEAK
from psirp_sim.rendezvous.access import allowed, sign
from psirp_sim.wire.rendezvous import Access, Code, Open, Registration, Side

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
PUBLIC, OTHER_PUBLIC = (key.public_key().public_bytes_raw() for key in (KEY, OTHER))
SID, RID = bytes(range(32)), bytes(range(32, 64))
PLAIN = Registration(7, Side.SUBSCRIBER, SID, RID)
GUEST = replace(PLAIN, guest=True)

ids = st.binary(min_size=32, max_size=32)
whos = st.sampled_from(Open) | st.lists(ids, min_size=1, max_size=3).map(tuple)
numbers = st.integers(0, 2**63 - 1)
fields = {
    "sequence": numbers,
    "side": st.sampled_from(Side),
    "sid": ids,
    "rid": ids | st.just(b""),
    "present": st.booleans(),
    "access": st.none() | st.builds(Access, whos, whos),
    "guest": st.booleans(),
}
registrations = st.builds(Registration, **fields)


def test_without_named_keys_only_guests_are_told_apart():
    assert allowed(Open.ANYONE, PLAIN, "c", 1) is Code.OK
    assert allowed(Open.ANYONE, GUEST, "c", 1) is Code.OK
    assert allowed(Open.FABRIC, PLAIN, "c", 1) is Code.OK
    assert allowed(Open.FABRIC, GUEST, "c", 1) is Code.NOT_ALLOWED
    # A proof does not make a guest a node.
    assert allowed(Open.FABRIC, sign(GUEST, "c", 1, KEY), "c", 1) is Code.NOT_ALLOWED


@pytest.mark.parametrize("registration", [PLAIN, GUEST])
def test_with_named_keys_a_proof_decides(registration):
    signed = sign(registration, "c", 1, KEY)
    assert allowed((PUBLIC,), registration, "c", 1) is Code.NOT_ALLOWED
    assert allowed((PUBLIC,), signed, "c", 1) is Code.OK
    assert allowed((OTHER_PUBLIC, PUBLIC), signed, "c", 1) is Code.OK
    assert allowed((OTHER_PUBLIC,), signed, "c", 1) is Code.NOT_ALLOWED
    borrowed = replace(signed, proof=(OTHER_PUBLIC, signed.proof[1]))
    assert allowed((OTHER_PUBLIC,), borrowed, "c", 1) is Code.WRONG_KEY


def test_what_is_signed_is_the_same_for_every_node_and_language():
    publish = Registration(
        70_000, Side.PUBLISHER, SID, b"", access=Access((PUBLIC,), Open.ANYONE), guest=True
    )
    expected = b"".join(
        (
            b"\x9a\xb3psph 1 registration\xa2n1\xcd\x01\x00\xce\x00\x01\x11\x70\x01",
            b"\xc4\x20" + SID + b"\xc4\x00\xc3",
            b"\x92\x91\xc4\x20" + PUBLIC + b"\x00\xc3",
        )
    )
    _, signature = sign(publish, "n1", 256, KEY).proof
    KEY.public_key().verify(signature, expected)


@given(registrations, st.text(min_size=1, max_size=63), numbers, st.data())
def test_a_change_of_anything_spoils_the_proof(registration, client, epoch, data):
    signed = sign(registration, client, epoch, KEY)
    assert allowed((PUBLIC,), signed, client, epoch) is Code.OK
    assert replace(signed, proof=None) == registration
    for name, strategy in fields.items():
        before = getattr(signed, name)
        other = data.draw(strategy.filter(lambda value, before=before: value != before))
        changed = replace(signed, **{name: other})
        assert allowed((PUBLIC,), changed, client, epoch) is Code.WRONG_KEY, name
    assert allowed((PUBLIC,), signed, client + "x", epoch) is Code.WRONG_KEY
    assert allowed((PUBLIC,), signed, client, epoch + 1) is Code.WRONG_KEY


@given(st.integers(0, 511))
def test_a_change_of_any_bit_spoils_the_signature(bit):
    signed = sign(PLAIN, "c", 1, KEY)
    signature = bytearray(signed.proof[1])
    signature[bit // 8] ^= 1 << bit % 8
    changed = replace(signed, proof=(PUBLIC, bytes(signature)))
    assert allowed((PUBLIC,), changed, "c", 1) is Code.WRONG_KEY


@given(st.binary(max_size=64), st.binary(max_size=80))
def test_nonsense_is_a_wrong_key(key, signature):
    registration = replace(PLAIN, proof=(key, signature))
    assert allowed((key,), registration, "c", 1) is Code.WRONG_KEY


@pytest.mark.parametrize("y", sorted(_WEAK))
@pytest.mark.parametrize("sign_bit", [0, 1 << 255])
def test_a_key_that_anyone_can_sign_for_is_no_key(y, sign_bit):
    key = (y | sign_bit).to_bytes(32, "little")
    for commitment in _WEAK:
        forged = replace(PLAIN, proof=(key, commitment.to_bytes(32, "little") + bytes(32)))
        assert allowed((key,), forged, "c", 1) is Code.WRONG_KEY


def test_the_library_would_have_taken_such_a_key():
    identity = (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(identity).verify(identity + bytes(32), b"anything")
