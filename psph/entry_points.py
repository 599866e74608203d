"""Things found by name through entry points: suites, protocols, experiments, benchmarks."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from psph.errors import PsphError


def names(group: str) -> list[str]:
    """What there is in a group, sorted."""
    return sorted({entry.name for entry in entry_points(group=group)})


def load(group: str, name: str, what: str) -> Any:
    """The object of that name; `what` is what a person would call it."""
    for entry in entry_points(group=group, name=name):
        try:
            return entry.load()
        except ImportError as error:
            raise PsphError(
                f"the {what} {name!r} needs something not installed: {error}"
            ) from error
    known = ", ".join(names(group)) or "none"
    raise PsphError(f"there is no {what} {name!r}; there is: {known}")
