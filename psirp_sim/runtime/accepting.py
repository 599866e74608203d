"""Links from addresses nobody configured: which are taken, how many, and for how long.

A stranger's packet costs next to nothing: only what begins like a control packet for a neighbour
is looked at, and no more than `CHECKS` of those a second. One that the policy knows for a
neighbour's makes a link. Such packets can be played back from anywhere, so

* the same packet makes a link once;
* a link that does not work both ways in time is removed again, and so is one that ceased to;
* with every place taken, a link that does not work makes room for a new one.

A link is called by the address at its other end, and not by the neighbour's name: a neighbour says
in its hellos what we call the link it hears us by, under the fabric's key. So a link to an address
works both ways only if somebody who has the key received there what we sent there, and nobody who
plays back what was said elsewhere can have a neighbour's link, or direct traffic at others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from blake3 import blake3

from psirp_sim.forwarding.table import LoopCache
from psirp_sim.runtime.durations import SECOND

CHECKS = 1_000
"""Packets of strangers that are looked at in a second."""
CHECKS_AT_ONCE = 100
IDLE = 60 * SECOND
"""How long a link that worked both ways is kept when it does not any more."""
SWEEP = SECOND
"""How often links are looked at."""
LONGEST_NAME = 63

_NAME = re.compile(r"[a-z0-9.-]{1,63}")


class Policy(Protocol):
    """What the node's core knows about strangers."""

    @property
    def most(self) -> int:
        """How many links are accepted."""

    @property
    def patience(self) -> int:
        """Nanoseconds a new link has to work both ways."""

    def neighbour(self, packet: bytes) -> str | None:
        """Who says hello in that control packet; None when it is nobody with our key."""

    def works(self, link: str) -> bool:
        """Whether the link of that name works both ways."""


@dataclass(slots=True)
class _Accepted:
    since: int
    """When it was accepted, or last seen to work."""
    worked: bool = False


class AcceptedLinks:
    """The places for accepted links, and who sits there."""

    def __init__(self, policy: Policy, now: Callable[[], int]) -> None:
        self._policy = policy
        self._now = now
        self._links: dict[str, _Accepted] = {}
        self._used = LoopCache()
        self._checks = float(CHECKS_AT_ONCE)
        self._counted = now()

    def __contains__(self, link: str) -> bool:
        return link in self._links

    def __len__(self) -> int:
        return len(self._links)

    def checks(self) -> int:
        """How many packets of strangers may be looked at now."""
        now = self._now()
        self._checks += (now - self._counted) * CHECKS / SECOND
        self._checks = min(self._checks, CHECKS_AT_ONCE)
        self._counted = now
        return int(self._checks)

    def check(self, packet: bytes) -> str | None:
        """Who says hello, if it is somebody with our key and this is no copy."""
        self._checks -= 1
        neighbour = self._policy.neighbour(packet)
        if neighbour is None or self._used.seen(blake3(packet).digest(length=16)):
            return None
        return neighbour

    def room(self) -> tuple[bool, str | None]:
        """Whether there is a place, and which link has to be removed for it."""
        if len(self._links) < self._policy.most:
            return True, None
        self._look()
        longest = min(self._links, key=lambda link: self._links[link].since, default=None)
        # A moment ago it worked, or it has not had its time yet.
        if longest is None or self._silence(longest) < self._policy.patience:
            return False, None
        return True, longest

    def add(self, link: str) -> None:
        self._links[link] = _Accepted(self._now())

    def discard(self, link: str) -> None:
        self._links.pop(link, None)

    def expired(self) -> list[str]:
        """The links that are to be removed."""
        self._look()
        return [
            link
            for link, accepted in self._links.items()
            if self._silence(link) >= (IDLE if accepted.worked else self._policy.patience)
        ]

    def _look(self) -> None:
        now = self._now()
        for link, accepted in self._links.items():
            if self._policy.works(link):
                accepted.since, accepted.worked = now, True

    def _silence(self, link: str) -> int:
        return self._now() - self._links[link].since


def link_name(prefix: str, host: str, port: int, scope: int = 0) -> str:
    """What a link to that address is called when nobody gave it a name.

    Always the same for an address, different for different ones, and a name links may have: as
    ``rv-192.0.2.7-4000``, ``rv-2001-db8--1-4000`` or ``rv-r1.site.test-4000``.
    """
    try:
        address = ip_address(host)
    except ValueError:
        host = host.lower()
    else:
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        host = str(mapped or address).replace(":", "-")
    name = f"{prefix}-{host}{f'.{scope}' if scope else ''}-{port}"
    if _NAME.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9.-]", "-", name)
    digest = blake3(name.encode()).hexdigest(length=6)
    return f"{readable[: LONGEST_NAME - len(digest) - 1]}-{digest}"
