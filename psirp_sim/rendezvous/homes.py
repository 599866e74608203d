"""Which servers keep a scope: the same answer at every node that knows the same servers.

Highest random weight: each server has a weight for each scope, and the heaviest are its homes.
So a server that comes or goes moves only the scopes that it gets or had.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from blake3 import blake3

HOME = "psph 1 home"


def homes(sid: bytes, servers: Sequence[str], count: int = 2) -> list[str]:
    """The homes of a scope among these servers, best first; fewer where there are fewer."""
    return list(_homes(sid, tuple(servers), count))


# A client asks for all its scopes whenever the servers change, and again with every registration.
@lru_cache(maxsize=1 << 14)
def _homes(sid: bytes, servers: tuple[str, ...], count: int) -> tuple[str, ...]:
    ranked = sorted(((_weight(sid, server), server) for server in set(servers)), reverse=True)
    return tuple(server for _, server in ranked[:count])


def _weight(sid: bytes, server: str) -> bytes:
    # Every sid has 32 bytes, so it is clear where the name begins.
    return blake3(sid + server.encode(), derive_key_context=HOME).digest()
