"""Signatures: Ed25519, with the keys left out for which anyone can make one."""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_P = 2**255 - 19
_ORDER_8 = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_WEAK = frozenset((0, 1, _P - 1, _P, _P + 1, _ORDER_8, _P - _ORDER_8))
"""Points of small order, by y. Such a key (all zeros is one) has signatures that anyone can make,
and the library takes them."""


def verified(key: bytes, signature: bytes, signed: bytes) -> bool:
    """Whether the signature is by that key."""
    public = _public(key)
    if public is None:
        return False
    try:
        public.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=1 << 10)
def _public(key: bytes) -> Ed25519PublicKey | None:
    if int.from_bytes(key, "little") % 2**255 in _WEAK:
        return None
    try:
        return Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        return None
