"""The highest claim a proxy knows of each client: who comes with a lower one is not the latest."""

from __future__ import annotations

import msgspec

from mobility.identity import Claim
from psirp_sim.runtime.environment import Environment

_CLAIM = b"mobility/claim/"


class Claims:
    """Of the clients of one proxy; durable, and bounded: the one heard of longest ago goes."""

    def __init__(self, env: Environment, most: int) -> None:
        self._env = env
        self._most = most
        self._known: dict[str, Claim] = {}

    def restore(self) -> None:
        """Read back what was durable."""
        for key, value in self._env.storage.scan(_CLAIM):
            self._known[key[len(_CLAIM) :].hex()] = Claim(*msgspec.msgpack.decode(value))

    def __contains__(self, client: str) -> bool:
        """Whether that client, or a question of its, has been here."""
        return client in self._known

    def above(self, client: str, claim: Claim) -> Claim | None:
        """The claim that supersedes this one, if there is any."""
        known = self._known.get(client)
        return known if known is not None and known > claim else None

    def learn(self, client: str, claim: Claim) -> bool:
        """Whether it is higher than any before."""
        known = self._known.get(client)
        if known is not None and known >= claim:
            return False
        self._known.pop(client, None)
        self._known[client] = claim
        changes: dict[bytes, bytes | None] = {
            _CLAIM + bytes.fromhex(client): msgspec.msgpack.encode(tuple(claim))
        }
        if len(self._known) > self._most:
            oldest = next(iter(self._known))
            del self._known[oldest]
            changes[_CLAIM + bytes.fromhex(oldest)] = None
        self._env.storage.write(changes)
        return True
