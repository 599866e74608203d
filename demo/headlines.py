"""What websites write when nobody tells them what to write."""

from __future__ import annotations

from random import Random

_WHO = ("The harbour", "The town library", "A local baker", "The tram company", "The observatory")
_DOES = ("opens", "repairs", "moves", "presents", "extends")
_WHAT = ("its oldest pier", "a reading room", "the night line", "a new telescope", "its garden")
_WHEN = ("today", "this week", "after years of work", "to everybody's surprise", "ahead of plan")


def headline(random: Random) -> str:
    """A line of news; hardly ever the same twice in a row."""
    return " ".join(random.choice(words) for words in (_WHO, _DOES, _WHAT, _WHEN))
