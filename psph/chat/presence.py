"""Who is there: what a PSPH says of its users, and what a reader makes of it.

A PSPH says `here` as long as a user has a stream open, again and again, and `away` afterwards. Each
word holds for a while; whoever is not heard of any more is away. A domain may have several PSPHs:
somebody is here when one of them says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from identifiers import PublisherId
from psph.chat.message import BadMessage, channel_of, creator_of, document

TITLE: Final = "Presence"
HERE: Final = "here"
AWAY: Final = "away"
SHORTEST: Final = 0.5
LONGEST: Final = 3_600.0
"""Seconds for which a word may hold."""
MOST_SAYING: Final = 8
"""PSPHs whose words about one user are kept."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What a PSPH says of a user."""

    jid: str
    here: bool
    ttl: float
    """Seconds for which that holds."""


def write(presence: Presence) -> bytes:
    """The document; `ttl` is in minutes, as RSS has it."""
    said = HERE if presence.here else AWAY
    return document(presence.jid, TITLE, said, [("ttl", f"{presence.ttl / 60:.6g}")])


def read(content: bytes) -> Presence:
    """What a document says; BadMessage when that is nothing of the kind."""
    channel = channel_of(content)
    said = (channel.findtext("description") or "").strip()
    if said not in (HERE, AWAY):
        raise BadMessage(f"somebody is {HERE} or {AWAY}")
    try:
        ttl = float(channel.findtext("ttl") or "1") * 60
    except ValueError:
        raise BadMessage("ttl is a number of minutes") from None
    if not SHORTEST <= ttl <= LONGEST:  # nor is it NaN
        raise BadMessage(f"ttl is from {SHORTEST} to {LONGEST} seconds")
    return Presence(creator_of(channel), said == HERE, ttl)


@dataclass(frozen=True, slots=True)
class Known:
    """How it stands with somebody, since when."""

    here: bool
    since: float | None = None
    """None when nothing was ever heard."""

    @property
    def state(self) -> str:
        return HERE if self.here else AWAY


class Sightings:
    """What is known of one user, by the words of its PSPHs. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._until: dict[PublisherId, float] = {}
        self.known = Known(False)

    def heard(self, said: Presence, publisher: PublisherId, at: float, now: float) -> bool:
        """A PSPH has said something at that time; whether that changes what is known."""
        self._until.pop(publisher, None)
        if said.here:
            self._until[publisher] = at + said.ttl
            if len(self._until) > MOST_SAYING:
                del self._until[next(iter(self._until))]
        return self._look(at, now)

    def passed(self, now: float) -> bool:
        """Time has; whether that changes what is known."""
        return self._look(max(self._until.values(), default=now), now)

    def _look(self, at: float, now: float) -> bool:
        ended = [each for each, until in self._until.items() if until <= now]
        for publisher in ended:
            at = max(at, self._until.pop(publisher))
        here = bool(self._until)
        if here == self.known.here:
            if self.known.since is None:
                self.known = Known(here, at)
            return False
        self.known = Known(here, min(at, now))
        return True

    @property
    def next(self) -> float | None:
        """When to look again."""
        return min(self._until.values(), default=None)
