"""X-Hub-Signature: proof to a callback that a delivery comes from its hub."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

ALGORITHMS: Final = ("sha1", "sha256", "sha384", "sha512")
"""Those of WebSub section 8, weakest first."""

DEFAULT_ALGORITHM: Final = "sha256"

_HASHES: Final = {name: getattr(hashlib, name) for name in ALGORITHMS}


def signature(secret: bytes, body: bytes, algorithm: str = DEFAULT_ALGORITHM) -> str:
    """The header's value, such as "sha256=9f86d0...": the HMAC of the body under the secret."""
    return f"{algorithm}={hmac.digest(secret, body, _HASHES[algorithm]).hex()}"


def verified(header: str, secret: bytes, body: bytes) -> bool:
    """Whether a subscriber may trust the body. Takes the same time for right and wrong."""
    algorithm, _, _ = header.partition("=")
    if algorithm not in _HASHES:
        return False
    expected = signature(secret, body, algorithm)
    return hmac.compare_digest(expected.encode(), header.strip().lower().encode(errors="replace"))
