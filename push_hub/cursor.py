"""The id of a stream's event: a cursor of this hub's log, opaque to readers.

A hub numbers the updates of all its topics in one sequence, the order it recorded them in (`seq`).
A cursor says which log, and up to which number its reader has everything: so one id is enough for
any number of topics. It means nothing at another hub, nor in another epoch of this one, where the
same numbers may stand for other updates. It cannot be taken for a Position, nor one for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from push_hub.store.records import Identity

_TEXT: Final = re.compile(r"([0-9a-f]{32}-[0-9]{1,19})-([1-9][0-9]{0,18})(-after)?")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the log."""

    seq: int
    with_after: bool = False
    """Whether it is only good together with the `after` that its stream began with: its reader has
    versions that the log does not name."""


class Log:
    """The cursors of one hub, in its current epoch."""

    def __init__(self, identity: Identity) -> None:
        self._name = f"{identity.publisher}-{identity.epoch}"

    def write(self, cursor: Cursor) -> str:
        """Its text, at most 78 characters."""
        return f"{self._name}-{cursor.seq}{'-after' if cursor.with_after else ''}"

    def read(self, text: str) -> Cursor | None:
        """The inverse; None for what this log has not written."""
        found = _TEXT.fullmatch(text)
        if found is None or found[1] != self._name or int(found[2]) >= 1 << 63:
            return None
        return Cursor(int(found[2]), found[3] is not None)
