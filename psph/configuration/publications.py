"""Publications as a node's configuration has them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.durations import SECOND
from psirp_sim.wire.publications import LARGEST, LARGEST_ENVELOPE

OVERHEAD = LARGEST_ENVELOPE - LARGEST
"""Bytes that an envelope has at most besides the content."""
_DEFAULT = PublicationSettings()


class PublicationConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each node decides for itself how much it keeps."""

    largest: Annotated[int, Meta(ge=1, le=LARGEST)] = _DEFAULT.largest
    """Bytes of content in what is published here."""
    # More than a hub keeps of a topic: what a proxy's hub still has, its fabric has, too.
    history_versions: Annotated[int, Meta(ge=1, le=1_000_000)] = 4_096
    history_bytes: Annotated[int, Meta(ge=1, le=1 << 40)] = _DEFAULT.history_bytes
    all_history_bytes: Annotated[int, Meta(ge=1, le=1 << 40)] = _DEFAULT.all_history_bytes
    waiting_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 40)] = _DEFAULT.waiting_bytes
    unfinished_events: Annotated[int, Meta(ge=1, le=1_000_000)] = _DEFAULT.unfinished_events
    unfinished_bytes: Annotated[int, Meta(ge=1, le=1 << 40)] = _DEFAULT.unfinished_bytes
    linger_s: Annotated[int, Meta(ge=0, le=3_600)] = _DEFAULT.linger // SECOND
    accept_unsigned: bool = _DEFAULT.accept_unsigned

    def __post_init__(self) -> None:
        if self.all_history_bytes < self.history_bytes:
            raise ValueError(
                f"all_history_bytes ({self.all_history_bytes}) is less than history_bytes"
                f" ({self.history_bytes}), which is for one stream alone"
            )
        if self.all_history_bytes < self.largest + OVERHEAD:
            raise ValueError(
                f"all_history_bytes ({self.all_history_bytes}) has no room for one publication"
                f" of the size largest ({self.largest}) with its header: at least"
                f" {self.largest + OVERHEAD}"
            )

    def settings(self) -> PublicationSettings:
        """As the cores want it."""
        return PublicationSettings(
            largest=self.largest,
            history_versions=self.history_versions,
            history_bytes=self.history_bytes,
            all_history_bytes=self.all_history_bytes,
            waiting_bytes=self.waiting_bytes,
            unfinished_events=self.unfinished_events,
            unfinished_bytes=self.unfinished_bytes,
            linger=self.linger_s * SECOND,
            accept_unsigned=self.accept_unsigned,
        )
