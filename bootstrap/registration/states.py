"""How a registrar stands with its zones, for diagnostics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ZoneState:
    """One zone. Times are seconds from now."""

    zone: str
    registered: bool
    """Whether the records were there when they were last seen."""
    trouble: str | None
    """Why the last attempt failed, in one line; None when it did not, or was not made yet."""
    next_attempt_in: float
    last_success_ago: float | None
    failures: int
    """Attempts that failed since the last success."""
    peers: tuple[str, ...] = ()
    """Other PSPHs of the zone."""
    notes: tuple[str, ...] = ()
    """What somebody should look at, although the PSPH is registered."""


@dataclass(frozen=True, slots=True)
class LearningState:
    """One DNS zone that is transferred. Times are seconds from now."""

    zone: str
    hosts: tuple[str, ...] | None
    """Those with addresses in it; None until they were learned."""
    trouble: str | None
    next_attempt_in: float
    last_success_ago: float | None
    failures: int
