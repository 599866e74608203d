"""Who a moving client is: the hash of a secret that it keeps.

Every proxy can check that a secret belongs to a client id and needs no list to do so; who knows
only the id, which stands in traces, can collect nothing. The epoch of a client counts its move-ins;
of two that claim to be the same client the one with the higher claim is.
"""

from __future__ import annotations

from typing import NamedTuple

from blake3 import blake3

from identifiers import PublisherId

SECRET_BYTES = 32
_CLIENT = "psph 1 mobile client"
_PUBLISHER = "psph 1 mobile publisher"


class Claim(NamedTuple):
    """Which move-in of a client somebody speaks for. Claims are ordered."""

    epoch: int
    nonce: int
    """Drawn at each move-in: two copies of one client that count alike still differ."""


def client_id(secret: bytes) -> str:
    """The id of the client with that secret: 64 hexadecimal digits."""
    return blake3(secret, derive_key_context=_CLIENT).hexdigest()


def publisher_id(secret: bytes) -> PublisherId:
    """Under which name that client numbers what it publishes."""
    return PublisherId(blake3(secret, derive_key_context=_PUBLISHER).digest(PublisherId.SIZE))
