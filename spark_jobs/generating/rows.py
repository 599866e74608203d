"""Events as columns of numbers: what is text or an id in a file is an index here.

Which texts the numbers stand for is the `World`'s, and `writing`'s to look up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from traces import Stage

Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

STAGES = tuple(Stage)
CODE = {stage: number for number, stage in enumerate(STAGES)}
NONE = -1
"""Where a column has no value."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Events; all columns are equally long, in any order of time."""

    stage: Numbers
    node: Numbers
    at: Numbers
    """True time, in nanoseconds since 1970: what the node's clock made of it, `writing` knows."""
    update: Numbers
    """Which update of this piece; its trace id is that of the piece at this index."""
    topic: Numbers
    named: Numbers
    """1 where the event has the topic's ids, as the fabric's events have."""
    version: Numbers
    subscriber: Numbers
    peer: Numbers
    size: Numbers
    reason: Numbers
    t1: Numbers
    t2: Numbers
    t3: Numbers
    t4: Numbers

    def __len__(self) -> int:
        return len(self.stage)

    def where(self, chosen: Flags | Numbers) -> Rows:
        """The rows that are chosen, by flag or by number."""
        return Rows(*(getattr(self, field.name)[chosen] for field in fields(self)))


def rows(stage: Stage, at: Numbers, **columns: ArrayLike) -> Rows:
    """Events of one stage; a column is an array, a number for all of them, or left out."""
    length = len(at)
    given: dict[str, ArrayLike] = {"stage": CODE[stage], "at": at, **columns}
    return Rows(
        **{
            field.name: np.broadcast_to(
                np.asarray(given.get(field.name, NONE), dtype=np.int64), (length,)
            )
            for field in fields(Rows)
        }
    )


def together(parts: Iterable[Rows]) -> Rows:
    """One after the other."""
    parts = list(parts)
    return Rows(
        *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Rows))
    )
