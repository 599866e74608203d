"""What an experiment consists of: parameters, a run, claims, plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Context:
    """What a run may use besides its parameters and its seed."""

    topologies: Path | None = None
    """A directory of real topologies, when the user named one."""
    progress: Callable[[float], None] = lambda done: None
    """Call it with the share of this run that is done, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement about the rows, and whether it holds."""

    id: str
    kind: Literal["paper", "ours"]
    """Whose statement it is."""
    claim: str
    holds: bool
    because: str = ""
    """The figures that decide it; always given when it does not hold."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture: a line per series, error bars where rows have them."""

    name: str
    x: str
    y: str
    series: str | None = None
    """The column whose values tell the lines apart."""
    log_x: bool = False
    log_y: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)
    """Only rows with these values in these columns."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What a column is called in the picture, with its unit; needed where its name has none."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Found by its name through the entry points `psph.experiments`."""

    name: str
    summary: str
    parameters: msgspec.Struct
    """The full size. Its type says which keys `--set` takes."""
    quick: msgspec.Struct
    """The same, small enough to end within two minutes."""
    run: Callable[[Any, int, Context], Sequence[Row]]
    """From parameters, a seed and a context to rows."""
    keys: Sequence[str]
    """The columns that say which case a row is about; over runs the others are averaged."""
    claims: Callable[[Sequence[Row]], Sequence[Claim]] = lambda rows: ()
    plots: Sequence[Plot] = ()
    pictures: Callable[[Sequence[Row], Path], None] | None = None
    """Draws into a directory what no `Plot` can; called only where matplotlib is installed."""
    shown: Callable[[Sequence[Row]], Sequence[Row]] = lambda rows: rows
    """What the table shows, where there are too many rows to read."""
    paper: Sequence[Row] = field(default_factory=list)
    """The figures of the source, in the columns of the rows where they can be compared."""
