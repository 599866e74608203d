"""What all nodes of a fabric must agree on, and how patient they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import Scheme


@dataclass(frozen=True, slots=True)
class FabricSettings:
    """The same at every node, but for what only a topology manager reads."""

    keys: FabricKeys
    link_seed: bytes
    """All link ids follow from it; secret where filters must not be guessed."""
    scheme: Scheme = field(default_factory=Scheme)
    hello_interval: int = SECOND
    """A link that fails is noticed within three of these."""
    refresh_interval: int = 30 * SECOND
    """How often link state is repeated; it is forgotten after four times that."""
    request_interval: int = 500 * MILLISECOND
    """How often a request without an answer is repeated."""
    tree_interval: int = 5 * SECOND
    """How often a tree is asked for again; the manager forgets it after four times that."""
    allow_exact: bool = True
    """Whether the manager may use exact filters."""
    largest_filter: int = 2048
    """Bits of the longest Bloom filter the manager may use."""
    table_choice: Literal["fpr", "fpa"] = "fpr"
    """Which table of tags the manager takes: fewest false copies, or the least full filter."""
    id_version: str = ""
    """The version of the id rules, told to neighbours."""
    rendezvous: RendezvousSettings = field(default_factory=RendezvousSettings)
    publications: PublicationSettings = field(default_factory=PublicationSettings)
