"""Streams that are not taken up yet: which of their versions are of our time.

A proxy that writes a topic in its turns says with every version in which one it was published, and
what was covered when that began. Who follows the topic since some turn takes up what was published
in that or a later one, beginning with the first.
"""

from __future__ import annotations

from enum import StrEnum

from psirp_sim.publications.delivery import Place


class Verdict(StrEnum):
    """On a version of a stream that is not taken up yet."""

    GOOD = "it is the next one that is ours"
    OLD = "it was published before our time"
    LATE = "there may be others of our time before it"
    WAITS = "it is not known whether its publisher writes the topic"


def judge(place: Place, turn: int, since: int, old: Place | None) -> Verdict:
    """What to do with the version at a place, published in some turn, for one who follows the topic
    since another; `old` is the last place of the stream that is known to be too old."""
    if turn < since:
        return Verdict.OLD
    follows = old is not None and place == (old[0], old[1] + 1)
    return Verdict.GOOD if follows or place[1] == 1 else Verdict.LATE


def begin_with(place: Place, covered: Place) -> Place:
    """From where to listen to a stream again: with what was covered, to see whose turn that was."""
    same = covered[0] == place[0]
    return (place[0], max(1, min(covered[1], place[1] - 1) if same else 1))
