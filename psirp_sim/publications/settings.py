"""How much is kept of publications, and how patient their two ends are."""

from __future__ import annotations

from dataclasses import dataclass

from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.wire.publications import LARGEST


@dataclass(frozen=True, slots=True)
class PublicationSettings:
    """Times in nanoseconds, sizes in bytes. Nodes of a fabric may differ in all of them."""

    largest: int = LARGEST
    """Of the content of one publication."""
    history_versions: int = 1_024
    """Versions of a stream that a publisher keeps."""
    history_bytes: int = 64 << 20
    """Of a stream; the latest version is kept in any case."""
    all_history_bytes: int = 256 << 20
    """Of all streams of a node together."""
    waiting_bytes: int = 64 << 20
    """Of all streams of a node together: what has come and cannot be handed on yet."""
    unfinished_events: int = 256
    """Events that a subscriber has in hand before it gets no more."""
    unfinished_bytes: int = 32 << 20
    """The same in bytes of content."""
    ask_interval: int = 100 * MILLISECOND
    """How soon a listener asks again for what it misses; then at growing intervals."""
    reorder: int = 4 * MILLISECOND
    """How long a listener waits for a packet that others have overtaken."""
    beacon_interval: int = 50 * MILLISECOND
    """How soon a publisher asks listeners that have not said that they have everything; then at
    growing intervals."""
    longest_pause: int = 2 * SECOND
    """No interval grows beyond it."""
    linger: int = 10 * SECOND
    """How long a publisher that withdraws waits for listeners that miss something."""
    accept_unsigned: bool = True
    """Whether unsigned publications of a zone without keys are taken."""
