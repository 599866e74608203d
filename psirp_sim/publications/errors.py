"""Why something is not published."""

from __future__ import annotations


class NotPublished(ValueError):
    """A version that does not fit; the message says why."""


class HistoryFull(NotPublished):
    """There is no room left for another stream."""
