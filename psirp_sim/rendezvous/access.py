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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.ed25519 import verified
from psirp_sim.wire.rendezvous import Code, Open, Registration, Who

REGISTRATION = "psph 1 registration"


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
_verified = lru_cache(maxsize=1 << 12)(verified)
