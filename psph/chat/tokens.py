"""What shows that somebody is who they say: derived from the key of the zone, so nothing is stored.

All PSPHs of a domain have that key, and so accept the same tokens; while one key replaces another,
those of both. Who is shut out is named in the configuration.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CONTEXT = "psph 1 chat token"


def token_of(key: Ed25519PrivateKey, jid: str) -> str:
    """The token of a user of the zone; the JID is in normal form."""
    derived = blake3(key.private_bytes_raw() + jid.encode(), derive_key_context=CONTEXT).digest()
    return base64.urlsafe_b64encode(derived).decode().rstrip("=")


def is_token_of(given: str, keys: Iterable[Ed25519PrivateKey], jid: str) -> bool:
    """Whether it is the user's, by one of the keys. Takes as long for a wrong one."""
    shown = given.encode(errors="replace")
    right = [hmac.compare_digest(shown, token_of(key, jid).encode()) for key in keys]
    return any(right)
