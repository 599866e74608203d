"""What one has said, until somebody has it for good.

A PSPH that takes a message has it on its disk. If that PSPH dies, its user goes on at another one
of the domain before anybody may have heard of it: so what was taken just before is sent there once
more, under the same id, ahead of what comes next. Readers know it by that.
"""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from psph.chat.message import BadMessage

MOST_WAITING: Final = 1_000
"""Messages that may wait to be sent."""
AGAIN: Final = 200
LATELY: Final = 60.0
"""Messages, and seconds since they were taken, that another PSPH is sent once more."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way."""

    recipient: str
    text: str
    id: str
    again: bool = False
    """Whether a PSPH has taken it before."""


@dataclass(frozen=True, slots=True)
class _Taken:
    message: Outgoing
    hub: str
    at: float


class Outbox:
    """Of one user, in the order in which things were said. Times are of one clock, in seconds."""

    def __init__(self) -> None:
        self._waiting: deque[Outgoing] = deque()
        self._taken: deque[_Taken] = deque(maxlen=AGAIN)

    def __len__(self) -> int:
        """How many were not acknowledged yet."""
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < MOST_WAITING

    @property
    def first(self) -> Outgoing:
        """The one to send next."""
        return self._waiting[0]

    def add(self, recipient: str, text: str) -> None:
        """BadMessage when too many wait."""
        if not self.has_room:
            raise BadMessage(f"{MOST_WAITING} messages wait already: wait until some are sent")
        self._waiting.append(Outgoing(recipient, text, secrets.token_hex(16)))

    def taken(self, message: Outgoing, hub: str, now: float) -> None:
        """A PSPH has it."""
        self._waiting.remove(message)
        self._taken.append(_Taken(message, hub, now))

    def refused(self, message: Outgoing) -> None:
        """No PSPH will ever have it."""
        self._waiting.remove(message)

    def at(self, hub: str, now: float) -> None:
        """This PSPH serves us from now on: what another has taken lately waits again."""
        there = [each for each in self._taken if each.hub != hub and now - each.at < LATELY]
        for each in reversed(there):
            self._taken.remove(each)
            self._waiting.appendleft(replace(each.message, again=True))
