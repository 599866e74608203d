"""Who may publish and subscribe in a scope, and how a client proves that it may.

A proof is an Ed25519 public key and its signature over this MessagePack array, integers in their
shortest form:

    ["psph 1 registration", client, epoch, sequence, side, sid, rid, present, access, guest]

Client and epoch are those of the message the registration comes in, so that nobody else can
use a proof he has seen, nor the same client in another life.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from psirp_sim.wire.rendezvous import Code, Open, Registration, Who

REGISTRATION = "psph 1 registration"

_P = 2**255 - 19
_ORDER_8 = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_WEAK = frozenset((0, 1, _P - 1, _P, _P + 1, _ORDER_8, _P - _ORDER_8))
"""Points of small order, by y. Such a key (all zeros is one) has signatures that anyone can make,
and the library takes them."""


def allowed(who: Who, registration: Registration, client: str, epoch: int) -> Code:
    """Whether `who` has this client in it: OK, NOT_ALLOWED, or WRONG_KEY for a false proof."""
    if isinstance(who, Open):
        return Code.NOT_ALLOWED if who is Open.FABRIC and registration.guest else Code.OK
    if registration.proof is None:
        return Code.NOT_ALLOWED
    key, signature = registration.proof
    if key not in who:
        return Code.NOT_ALLOWED
    verified = _verified(key, signature, _signed(registration, client, epoch))
    return Code.OK if verified else Code.WRONG_KEY


def sign(
    registration: Registration, client: str, epoch: int, key: Ed25519PrivateKey
) -> Registration:
    """The registration with a proof by that key."""
    signature = key.sign(_signed(registration, client, epoch))
    proof = (key.public_key().public_bytes_raw(), signature)
    return msgspec.structs.replace(registration, proof=proof)


def _signed(registration: Registration, client: str, epoch: int) -> bytes:
    return msgspec.msgpack.encode(
        (
            REGISTRATION,
            client,
            epoch,
            registration.sequence,
            registration.side,
            registration.sid,
            registration.rid,
            registration.present,
            registration.access,
            registration.guest,
        )
    )


# A request that is not answered in time comes again.
@lru_cache(maxsize=1 << 12)
def _verified(key: bytes, signature: bytes, signed: bytes) -> bool:
    if int.from_bytes(key, "little") % 2**255 in _WEAK:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True
