"""Topics of the fabric itself, `psirp:SID/RID`: which ones clients may have, and where they are.

A PSPH is a member of the fabric and hears more than its clients may: conversations, say, are topics
there as well. So its operator names the scopes whose topics it passes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from identifiers import Position
from mobility import After, Listener, Message, PubSub, Subscription

NATIVE = "psirp:"
ANY_SCOPE = "*"
_IDS = re.compile(r"psirp:([0-9a-f]{64})/([0-9a-f]{64})")
_SCOPE = re.compile(r"[0-9a-f]{64}")


def native_ids(topic: str) -> tuple[bytes, bytes] | None:
    """Scope and rendezvous id of a native topic; None for anything else."""
    found = _IDS.fullmatch(topic)
    return None if found is None else (bytes.fromhex(found[1]), bytes.fromhex(found[2]))


class NativeScopes:
    """The scopes whose topics clients may have."""

    def __init__(self, scopes: Iterable[str]) -> None:
        """As the configuration names them; ValueError for what is neither a scope id nor `*`."""
        named = list(scopes)
        for each in named:
            if each != ANY_SCOPE and not _SCOPE.fullmatch(each):
                known = "write 64 hexadecimal digits in lower case, or *"
                raise ValueError(f"native_scopes: {each[:100]!r} is no scope id: {known}")
        self._any = ANY_SCOPE in named
        self._scopes = {bytes.fromhex(each) for each in named if each != ANY_SCOPE}

    def __contains__(self, sid: bytes) -> bool:
        return self._any or sid in self._scopes


class NativeTopics:
    """Implements `mobility.port.PubSub`: native topics at the fabric, all others elsewhere."""

    def __init__(self, fabric: PubSub, others: PubSub) -> None:
        self._fabric = fabric
        self._others = others

    def _home(self, topic: str) -> PubSub:
        return self._fabric if topic.startswith(NATIVE) else self._others

    def history(self, topic: str) -> int:
        return self._home(topic).history(topic)

    def subscribe(self, topic: str, after: After, listener: Listener) -> Subscription:
        return self._home(topic).subscribe(topic, after, listener)

    def publish(
        self, topic: str, position: Position | None, message: Message, done: Callable[[], None]
    ) -> None:
        self._home(topic).publish(topic, position, message, done)
