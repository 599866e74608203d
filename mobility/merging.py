"""The merge queue of one topic: what came directly and what came out of buffers, on one Position.

The cursor says how far the application has come in each stream (publisher). What directly follows
it passes at once, wherever it came from, and what it has passed is a duplicate. Everything else is
held: while there are sources left that may have what lies between, nobody can say that it is
missing. `flush` is called when there are none; only then is a hole a gap.

    cursor 4    held  7 8 (live)    goal 8      5 arrives from a buffer: passes; 6 is awaited
                                                no source left: gap 6, then 7, 8
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from identifiers import Position, PublisherId
from mobility.events import Consumed, Gap, Reset, Update
from mobility.port import After, Message


class Flow:
    """What has been consumed of a topic, and what waits to be."""

    def __init__(
        self,
        topic: str,
        places: After = None,
        whole: bool = False,
        heard: Iterable[Position] = (),
        since: int = 0,
        floor: Iterable[Position] = (),
    ) -> None:
        self.topic = topic
        self.since = since
        """The first stay of the client that may keep something of this subscription: what earlier
        ones have of the topic is of one that is over."""
        self.floor = {each.publisher: each for each in floor}
        """What the subscription before had consumed, if it ended in that stay: its proxy may keep
        that still, and it must not come again."""
        self.begun = places is not None
        """A subscription has been in effect: from there on everything counts."""
        self.whole = whole
        """Streams without a cursor count from their first version: all others are known."""
        self.cursor: dict[PublisherId, Position] = {each.publisher: each for each in places or ()}
        self.heard: dict[PublisherId, Position] = {each.publisher: each for each in heard}
        """Of streams without a cursor that count from nowhere: the first that is known to exist. It
        could not be consumed yet, and must not go missing without a word."""
        self.noted = dict(self.heard)
        """That, as it was last written."""
        self.durable: After = places
        """The cursor as it will be found after a crash; nobody else is told a later one."""
        self.duplicates = 0
        self.restart()

    def restart(self) -> None:
        """The client moved: what is not consumed is asked for again."""
        self.ready = False
        """The subscription at the new place is in effect."""
        self._fresh = False
        """It began here: a buffer may have begun earlier, and has nothing that does not come."""
        self._blind = False
        """Nobody could say from where on it brings everything."""
        self._marks: dict[PublisherId, Position] = {}
        """How far the live flow has come in each stream: what is newer will come through it."""
        self._held: dict[PublisherId, dict[tuple[int, int], Message | None]] = {}
        self._goal: dict[PublisherId, Position] = dict(self.heard)
        self._owed: dict[PublisherId, Position] = {}
        """Up to where a replaying system has yet to bring each stream."""
        self.held_bytes = 0

    def begin_anew(self) -> None:
        """What was consumed does not matter any more: the topic is excluded from the service."""
        self.begun = self.whole = False
        self.cursor.clear()
        self.heard.clear()
        self.restart()

    @property
    def after(self) -> After:
        """Where a subscription goes on."""
        return tuple(self.cursor.values()) if self.begun else None

    # What comes

    def subscribed(self, base: After, replays: bool) -> None:
        """The direct subscription is in effect, and everything after `base` comes through it."""
        self.ready = True
        if not self.begun:
            self.begun = self._fresh = True
            self.whole = base is not None
            for position in base or ():
                self.cursor[position.publisher] = position
                self._mark(position)
            self._held.clear()
            self._goal.clear()
            self.held_bytes = 0
            return
        self._blind = base is None
        for position in base or ():
            if not self._is_new(position):
                self._mark(position)
                continue
            self.aim(position)
            if replays:
                self._owed[position.publisher] = position
            else:
                self._mark(position)

    def aim(self, position: Position) -> None:
        """A buffer's word that everything up to there exists: it comes, or is missing."""
        if not self._fresh:
            self._aim(position)

    def _aim(self, position: Position) -> None:
        known = self.whole or position.publisher in self.cursor or position.publisher in self.heard
        if not known and not self._held.get(position.publisher):
            return  # of a stream that was never heard of, nothing before the first can be missed
        goal = self._goal.get(position.publisher)
        if goal is None or position > goal:
            self._goal[position.publisher] = position

    def offer(self, position: Position, message: Message | None, direct: bool) -> None:
        """A message, from the live flow or a buffer; None where it was excluded from it."""
        if direct:
            self._came_directly(position)
        elif self._fresh:
            return
        if not self._is_new(position):
            self.duplicates += 1
            return
        if self.begun and not self.whole and position.publisher not in self.cursor:
            heard = self.heard.get(position.publisher, position)
            self.heard[position.publisher] = min(heard, position)
        held = self._held.setdefault(position.publisher, {})
        key = (position.epoch, position.version)
        if held.get(key) is None:
            self.held_bytes += 0 if message is None else len(message.body)
            held[key] = message
        else:
            self.duplicates += 1

    def pass_directly(self, position: Position, message: Message) -> Update | None:
        """The usual case in short: what comes directly and follows the cursor, while nothing else
        of its publisher is here. None when it is another case, and nothing has changed."""
        publisher = position.publisher
        at = self.cursor.get(publisher)
        if at is None or self._held.get(publisher) or not position.directly_follows(at):
            return None
        self._came_directly(position)
        self.cursor[publisher] = position
        return Update(self.topic, position, message)

    def missing(self, first: Position, last: Position) -> None:
        """The system itself cannot bring these any more; a buffer may."""
        self._came_directly(last)
        self._aim(last)

    def _came_directly(self, position: Position) -> None:
        self._mark(position)
        owed = self._owed.get(position.publisher)
        if owed is not None and position >= owed:
            del self._owed[position.publisher]

    def _mark(self, position: Position) -> None:
        mark = self._marks.get(position.publisher)
        if mark is None or position > mark:
            self._marks[position.publisher] = position

    def _is_new(self, position: Position) -> bool:
        at = self.cursor.get(position.publisher)
        if at is None:
            at = self.floor.get(position.publisher)
        return at is None or position > at

    # What goes on

    @property
    def caught_up(self) -> bool:
        """The direct subscription has brought what it can of the time before it."""
        return self.ready and not self._owed

    @property
    def lacking(self) -> bool:
        """Something exists, or may, that is not here and will not come directly: a buffer may
        have it."""
        return self._blind or self.has_hole

    @property
    def has_hole(self) -> bool:
        """The live flow has passed something that is not here: only a buffer can have it."""
        return self.begun and any(self._is_final(publisher) for publisher in self._ahead)

    @property
    def open_holes(self) -> Iterator[tuple[str, PublisherId, Position | None]]:
        """What is missing now and might come directly still, as far as anybody can tell."""
        if self._blind:
            for publisher in self._ahead:
                if not self._is_final(publisher):
                    yield self.topic, publisher, self.cursor.get(publisher)

    @property
    def _ahead(self) -> list[PublisherId]:
        """Streams of which something is known that the cursor has not reached."""
        aimed = [each for each, goal in self._goal.items() if self._is_new(goal)]
        held = [each for each, held in self._held.items() if held]
        return list(dict.fromkeys(aimed + held))

    def _is_final(self, publisher: PublisherId) -> bool:
        """Whether what follows the cursor is behind the live flow."""
        mark = self._marks.get(publisher)
        return mark is not None and self._is_new(mark)

    def take(self) -> Iterator[Consumed]:
        """Everything that directly follows the cursor. The cursor moves with each."""
        for publisher, held in self._held.items():
            while held and (key := self._next(publisher)) in held:
                yield from self._pass(publisher, key, held.pop(key))

    def flush(self, reason: str) -> Iterator[Consumed]:
        """Everything up to where the live flow is, with gaps where something is missing. What is
        newer comes directly; only where nobody can tell, everything goes."""
        for publisher in {**self._held, **self._goal}:
            mark = self._marks.get(publisher)
            held = self._held.get(publisher, {})
            for key in sorted(held):
                if self._blind or (mark is not None and key <= (mark.epoch, mark.version)):
                    yield from self._hole(publisher, key, reason)
                    yield from self._pass(publisher, key, held.pop(key))
            goal = self._goal.pop(publisher, None)
            if not self._blind and goal is not None:
                goal = None if mark is None else min(goal, mark)
            if goal is not None and self._is_new(goal):
                yield from self._hole(publisher, (goal.epoch, goal.version + 1), reason)
                self._reach(goal)
        self._blind = False
        yield from self.take()

    def _next(self, publisher: PublisherId) -> tuple[int, int]:
        at = self.cursor.get(publisher)
        if at is not None:
            return (at.epoch, at.version + 1)
        first = min(self._held[publisher])
        # What is heard first of a stream passes at once only if nothing can be before it.
        begins = first[1] == 1 if self.whole else self._fresh
        return first if begins else (-1, 0)

    def _hole(
        self, publisher: PublisherId, key: tuple[int, int], reason: str
    ) -> Iterator[Consumed]:
        """What lies between the cursor and that place."""
        epoch, version = key
        at, heard = self.cursor.get(publisher), self.heard.get(publisher)
        if at is None and heard is not None and heard.epoch < epoch:
            at = self._reach(heard)
            yield Gap(self.topic, publisher, at.epoch, at.version, at.version, reason)
        if at is None:
            first = 1 if self.whole else version if heard is None else heard.version
        elif at.epoch != epoch:
            yield Reset(self.topic, publisher, epoch, at)
            return
        else:
            first = at.version + 1
        if first < version:
            self._reach(Position(publisher, epoch, version - 1))
            yield Gap(self.topic, publisher, epoch, first, version - 1, reason)

    def _pass(
        self, publisher: PublisherId, key: tuple[int, int], message: Message | None
    ) -> Iterator[Consumed]:
        position = self._reach(Position(publisher, *key))
        if message is not None:
            self.held_bytes -= len(message.body)
            yield Update(self.topic, position, message)

    def _reach(self, position: Position) -> Position:
        self.cursor[position.publisher] = position
        self.heard.pop(position.publisher, None)
        return position


def furthest(places: Iterable[Position], others: Iterable[Position]) -> tuple[Position, ...]:
    """For each publisher named in either, the higher of the two."""
    found: dict[PublisherId, Position] = {}
    for position in (*places, *others):
        known = found.get(position.publisher)
        if known is None or position > known:
            found[position.publisher] = position
    return tuple(found.values())
