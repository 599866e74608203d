"""What an operator can choose about traces; embedded in the TOML configuration."""

from typing import Annotated

from msgspec import Meta, Struct

_MIB = 2**20
_GIB = 2**30
_DAY_S = 86_400


class TraceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes are bytes on disk, times are seconds."""

    directory: str | None = None
    """Where traces go, for the program that opens the writer; none: it writes no traces."""

    rotate_bytes: Annotated[int, Meta(ge=1)] = 16 * _MIB
    """A file is finished at about this size; until then it is held in memory."""

    rotate_seconds: Annotated[float, Meta(gt=0)] = 60.0
    """A file is finished at this age: how long readers wait, and what a crash can lose."""

    keep_seconds: Annotated[float, Meta(ge=0)] = 7.0 * _DAY_S
    """Files older than this are removed; 0 keeps them for ever."""

    keep_bytes: Annotated[int, Meta(ge=0)] = 1 * _GIB
    """The oldest files are removed when a node's files exceed this; 0 sets no limit."""

    queue_events: Annotated[int, Meta(ge=1)] = 65_536
    """Events that may wait to be encoded; the newest beyond that are dropped and counted."""

    recent: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """The last events that are also kept in memory, for /traces/recent at the admin port."""

    fsync: bool = False
    """Whether a file must be safe from power loss, not only from a crash, when it appears."""

    def __post_init__(self) -> None:
        if 0 < self.keep_bytes < self.rotate_bytes:
            raise ValueError(
                f"keep_bytes ({self.keep_bytes}) is less than one file of rotate_bytes"
                f" ({self.rotate_bytes}): raise keep_bytes or lower rotate_bytes"
            )
