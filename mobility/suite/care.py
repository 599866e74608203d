"""In whose care a client was, at every moment: the harness's own account of who had to keep what.

It is made from what was promised on the wire (Welcome, MovedOut) and from what the harness did to
nodes, never from what a core keeps. A proxy that gave its word must have every message that it
could have: of a topic without history, whatever is published from its Welcome on; of one with a
history, whatever that still had when the client's departure had to be noticed at the latest. The
only excuse is that the proxy was down, and that ends soon after its restart. And a client hears for
itself, until it goes, once it is live, and of a topic from the moment its first subscription began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from psirp_sim.runtime.durations import MILLISECOND

NEVER = 1 << 62
UNDER_WAY = 60 * MILLISECOND
"""How long a message may take through the system until it is durable."""
UNNOTICED = 150 * MILLISECOND
"""How long a client may be attached to nothing before it learns that."""
UNREPORTED = 1_500 * MILLISECOND
"""How long, while it is up, a client may not have been able to say what it consumed."""
LATE = 300 * MILLISECOND
"""By how much a packet may be late, in a storm."""


@dataclass(slots=True)
class Spells:
    """When a node was down, and when it stood still; the last may not be over."""

    down: list[tuple[int, int]] = field(default_factory=list)
    still: list[tuple[int, int]] = field(default_factory=list)

    def observe(self, now: int, up: bool, paused: bool) -> None:
        """This is how the node is from now on."""
        for spells, holds in ((self.down, not up), (self.still, paused)):
            going_on = bool(spells) and spells[-1][1] == NEVER
            if holds and not going_on:
                spells.append((now, NEVER))
            elif going_on and not holds:
                spells[-1] = (spells[-1][0], now)

    def done_by(self, begun: int, length: int) -> int:
        """When something is done for certain that takes so long and is begun anew after a crash."""
        for begin, end in sorted(self.down + self.still):
            if begin < begun + length and end > begun:
                begun = end
        return begun + length

    def awake_before(self, moment: int, length: int) -> int:
        """From when on, until that moment, the node was up and not still for so long."""
        for begin, end in sorted(self.down + self.still, reverse=True):
            end = min(end, moment)
            if begin < end and end > moment - length:
                moment, length = begin, length - (moment - end)
        return moment - length

    def is_down(self, begin: int, end: int) -> bool:
        """At any time between."""
        return any(since <= end and until > begin for since, until in self.down)


@dataclass(slots=True)
class Stay:
    """One move-in of a client, and what its proxy promised."""

    proxy: str
    answered: int
    """When it asked what its proxy answered last: it had not gone away before that. At first, when
    the client came."""
    words: dict[str, int] = field(default_factory=dict)
    """By topic: when the client learned that the proxy would notice its departure."""
    pledges: dict[str, int] = field(default_factory=dict)
    """Likewise, of topics that are new: the proxy is about to subscribe."""
    dismissals: dict[str, int] = field(default_factory=dict)
    """By topic: when the client learned that the proxy had taken over."""
    welcomed: int = NEVER
    moved_out: int = NEVER
    left: int = NEVER
    """When it was there for the last time, if it went without a word."""
    hears: dict[str, int] = field(default_factory=dict)
    """By topic: since when the client consumes what comes directly, whatever else it waits for."""
    live: int = NEVER
    """When the client said that it was."""
    over: int = NEVER
    """When everything had been consumed, and another proxy had given its word."""


class Care:
    """Of one client."""

    def __init__(
        self, own: Spells, proxies: dict[str, Spells], silence: int, slowest: int, keep: int
    ) -> None:
        """`own`, `proxies`: what the harness did to the client's node, and to each proxy's.
        `silence`: until a departure is noticed; `slowest`: until a subscription is in effect;
        `keep`: how long a client may be away."""
        self._keep = keep
        self._own = own
        self._proxies = proxies
        self._silence = silence
        self._slowest = slowest
        self._stays: list[Stay] = []

    # What happens to the client

    def came(self, proxy: str, now: int) -> None:
        self.left(now)
        self._stays.append(Stay(proxy, now))

    def left(self, now: int) -> None:
        """It is not there any more, or does not know any more that it is."""
        if self._stays:
            stay = self._stays[-1]
            stay.left = min(stay.left, now)

    def began(self, topic: str, now: int) -> None:
        """The client's first subscription to a topic is in effect: nothing earlier is owed."""
        self._stays[-1].hears[topic] = now

    def arrived(self, topics: Iterable[str], now: int) -> None:
        """It is live, with these topics."""
        stay = self._stays[-1]
        stay.live = now
        for topic in topics:
            stay.hears.setdefault(topic, now)
        self._end_earlier(now)

    def answered(self, number: int, asked: int) -> None:
        """The proxy of that stay answered a question of someone who is there."""
        self._stays[number].answered = max(self._stays[number].answered, asked)

    def welcomed(self, number: int, topics: Iterable[str], now: int) -> None:
        """The word of the proxy of that stay reached the client, for these topics."""
        stay = self._stays[number]
        if stay.welcomed != NEVER and now >= stay.answered + self._keep:
            # It was silent for so long that the stay may have expired: it begins once more.
            stay.words.clear()
            stay.pledges.clear()
        stay.welcomed = min(stay.welcomed, now)
        for topic in topics:
            stay.words.setdefault(topic, now)
        self._end_earlier(now)

    def pledged(self, number: int, topics: Iterable[str], now: int) -> None:
        """Its proxy knows these topics."""
        for topic in topics:
            self._stays[number].pledges.setdefault(topic, now)

    def moved_out(self, number: int, topics: Iterable[str], now: int) -> None:
        stay = self._stays[number]
        stay.moved_out = min(stay.moved_out, now)
        for topic in topics:
            stay.dismissals.setdefault(topic, now)

    def unsubscribed(self, topic: str) -> None:
        """Nothing of that topic is owed any more, whoever gave his word."""
        for stay in self._stays:
            for each in (stay.words, stay.pledges, stay.dismissals, stay.hears):
                each.pop(topic, None)

    @property
    def number(self) -> int:
        """Of the present stay."""
        return len(self._stays) - 1

    def _end_earlier(self, now: int) -> None:
        *earlier, present = self._stays
        if present.live != NEVER and present.left == NEVER and present.welcomed != NEVER:
            for stay in earlier:
                stay.over = min(stay.over, now)

    # What must have been kept

    def unreported(self, moment: int) -> int:
        """Since when the client's proxy may not know, at that moment, what was consumed."""
        return self._own.awake_before(moment, UNREPORTED)

    def survived(self, moment: int) -> bool:
        """Whether the client lived on for long enough to make durable what it heard then."""
        return not self._own.is_down(moment, self._own.done_by(moment, UNDER_WAY))

    def kept(self, topic: str, published: int, lost: int, now: int = 0) -> bool:
        """Whether some proxy must have a message that was published then, and that the system
        itself had until it was `lost`; or the client itself must have heard it. With `now`, what
        may have expired until then does not count."""
        return any(self._kept(stay, topic, published, lost, now) for stay in self._stays)

    def _kept(self, stay: Stay, topic: str, published: int, lost: int, now: int) -> bool:
        gone, hears = min(stay.left, stay.moved_out), stay.hears.get(topic, NEVER)
        if hears <= published and self._own.done_by(published, UNDER_WAY + UNNOTICED) < gone:
            return True
        if published > stay.over - UNDER_WAY or now >= stay.answered + self._keep:
            return False
        spells = self._proxies[stay.proxy]
        begin = max(published, self._takes_over(stay, topic, spells, history=lost > published))
        resubscribed = [spells.done_by(end, self._slowest + UNDER_WAY) for _, end in spells.down]
        for moment in (begin, *(each for each in resubscribed if each > begin)):
            if moment > lost:
                continue
            since = spells.awake_before(moment, self._slowest + UNDER_WAY)
            if moment == begin and spells.is_down(since, moment):
                continue  # down, or not subscribed again for certain
            if not spells.is_down(moment, spells.done_by(moment, UNDER_WAY)):
                return True
        return False

    def _tells(self, stay: Stay, topic: str) -> int:
        """When the client, at the latest, must have told its proxy of a topic."""
        begun = max(stay.hears.get(topic, NEVER), stay.welcomed)
        told = NEVER if begun >= NEVER else self._own.done_by(begun, UNREPORTED)
        return told if told < min(stay.left, stay.moved_out) else NEVER

    def _takes_over(self, stay: Stay, topic: str, spells: Spells, history: bool) -> int:
        """From when on, at the latest, the proxy is subscribed in the client's place."""
        word, dismissal = stay.words.get(topic, NEVER), stay.dismissals.get(topic, NEVER)
        pledge = min(stay.pledges.get(topic, NEVER), self._tells(stay, topic))
        if pledge != NEVER:
            word = min(word, spells.done_by(pledge, self._slowest + UNDER_WAY))
        if history and word != NEVER:
            word = NEVER
            if stay.left != NEVER:
                noticed = LATE + self._silence + self._slowest + UNDER_WAY
                word = spells.done_by(stay.left, noticed)
        return min(word, dismissal)
