"""Where a stream goes on: what it has sent, and what it owes its reader before the next update.

A reader comes with Positions, which may be those of another hub. What this hub has recorded after
them is sent from the history. What it has not, and what left the history, is asked for elsewhere
(`recalling`) and sent in its place; only what cannot be had any more is a `gap`. A `reset` says
that the numbering is another one than the reader knew: a new epoch of a publisher, or another
publisher, where nothing is known here of those that the reader has followed.

Or it comes with a cursor of this hub's log: it has everything of all its topics up to a number.
Which Positions these are is in the history, except where later updates of a publisher have left it:
that is a `gap`. A cursor of another log says nothing: each topic has a `reset`. What was asked for
elsewhere is in no log, so its event has no cursor and may come again.

Nothing is sent twice that the reader said it has, and nothing of one publisher out of order. The
cursor of an event says that everything before it in the log, of any topic of the stream, was sent
or is known to be lost. So topics are read together and sent in the order of the log, and what left
the history is spoken of before anything later is sent, be it of another topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from operator import attrgetter

from identifiers import Position, PublisherId, Topic
from push_hub.context import Context
from push_hub.cursor import Cursor, Log
from push_hub.event_stream import Event, notice_event
from push_hub.recalling import Recalling
from push_hub.recent import Recent, Remembered
from push_hub.store.records import Forgotten, LogPlace, Update

_PAGE = 256
_PAGE_BYTES = 256 << 10
"""Of bodies that are read from the history, or of events that are sent, at a time."""
_UNKNOWN = 2
"""Publishers unknown to this hub whose versions are asked for elsewhere, for one reader."""
_seq = attrgetter("update.seq")


@dataclass(frozen=True, slots=True)
class Start:
    """A topic of a stream, and where its reader is: at most one Position of each publisher."""

    topic_id: int
    topic: Topic
    after: tuple[Position, ...] = ()
    last: int = 1
    """How many of the last versions to begin with, where there is no Position, or none that is
    known here."""

    @property
    def spelling(self) -> str:
        return self.topic.spelling


class Resumption:
    """The memory of one stream. `since` is the id of the last event that its reader had."""

    def __init__(
        self,
        context: Context,
        recalling: Recalling,
        recent: Recent,
        log: Log,
        starts: Sequence[Start],
        *,
        whole: bool,
        since: str | None,
    ) -> None:
        self._context = context
        self._recalling = recalling
        self._recent = recent
        self._starts = {each.topic_id: each for each in starts}
        self._whole = whole
        self._log = log
        self._since = since
        self._foreign = False
        """Whether the reader has versions of publishers that this hub's log does not name."""
        self._unknown = False
        """Whether `since` is of another log."""
        self._read: dict[int, int] = {}
        """By topic: the update up to which the history was read and sent."""
        self._last: dict[tuple[int, PublisherId], Position] = {}
        self._recorded: set[int] = set()
        """The topics of which this hub had something when the stream began."""
        self._unsettled: dict[int, tuple[Position, ...]] = {}
        """By topic: where the reader is, while this hub has nothing of the topic at all."""

    async def catch_up(self) -> AsyncIterator[list[Event]]:
        """What was recorded since the reader's Positions, or the current versions."""
        resume = await self._resume_log()
        if not resume:
            for start in self._starts.values():
                said = [event async for event in self._begin(start, resume)]
                if said:
                    yield said
        at = min(resume.values())
        while True:
            page, forgotten = await self._page(resume, at)
            for lost in forgotten:
                said = [event async for event in self._tell(lost, resume[lost.topic_id])]
                if said:
                    yield said
            if not page:
                return
            events: list[Event] = []
            size = 0
            for each in page:
                update = each.update
                at = update.seq
                if at <= resume[update.topic_id]:
                    continue
                self._read[update.topic_id] = at
                usual = self._follow(each)
                if usual is not None:
                    events.append(usual)
                    size += len(usual.data)
                else:
                    # What is had elsewhere may be much more than the page.
                    async for event in self._send(each):
                        events.append(event)
                        size += len(event.data)
                        if size > _PAGE_BYTES:
                            yield events
                            events, size = [], 0
                if size > _PAGE_BYTES:
                    yield events
                    events, size = [], 0
            if events:
                yield events

    async def _page(
        self, resume: dict[int, int], at: int
    ) -> tuple[Sequence[Remembered], Sequence[Forgotten]]:
        """What follows number `at` in any of the topics, and what would have but left the history.
        From memory, if all of it is there."""
        found = []
        for topic_id, after in resume.items():
            newer = self._recent.after(topic_id, max(at, after))
            if newer is None:
                break
            found.append(newer)
        else:
            return (found[0] if len(found) == 1 else list(merge(*found, key=_seq))), ()
        page, forgotten = await self._context.store.log_page(list(resume), at, _PAGE, _PAGE_BYTES)
        return list(map(Remembered, page)), forgotten

    async def _tell(self, lost: Forgotten, resume: int) -> AsyncIterator[Event]:
        """Versions that left the history and that the reader lacks: those that the carrier can
        bring, and a notice of the others. The reader was at number `resume` of the log."""
        start, publisher = self._starts[lost.topic_id], lost.position.publisher
        key = (lost.topic_id, publisher)
        last = self._last.get(key)
        # Without a Position it had what the log had of this publisher, if it is known how far; a
        # reader that has only begun lacks nothing.
        resumed = bool(start.after) or self._since is not None
        lacks = resumed and 0 < resume < lost.seq if last is None else last < lost.position
        if not lacks:
            return
        store = self._context.store
        newer = await store.backlog(lost.topic_id, publisher, lost.position, 1)
        resumes = newer[0].position if newer else None
        if last is not None:
            same = resumes is not None and resumes.epoch == last.epoch
            async for event in self._recalled(start, last, resumes if same else None):
                yield event
            last = self._last[key]
            if last >= lost.position:
                return
        if resumes is None:
            self._last[key] = lost.position
            resumes = await self._next(lost.topic_id, resume)
        elif resumes.version > 1:
            self._last[key] = Position(publisher, resumes.epoch, resumes.version - 1)
        else:
            self._last.pop(key, None)
        if last is None and self._since is None and start.after:
            last = start.after[-1]
        if last is not None and resumes is not None and resumes.directly_follows(last):
            return
        goes_on = (
            last is None
            or resumes is None
            or (last.publisher, last.epoch) == (resumes.publisher, resumes.epoch)
        )
        yield notice_event("gap" if goes_on else "reset", start.spelling, last, resumes)

    async def _next(self, topic_id: int, seq: int) -> Position | None:
        """What the history of a topic has next after a number, or last."""
        newer = await self._context.store.history([topic_id], seq, 1)
        latest = newer[0] if newer else await self._context.store.latest(topic_id)
        return None if latest is None else latest.position

    def cursor(self, seq: int) -> str:
        """The id of the event of an update with this number."""
        return self._log.write(Cursor(seq, self._foreign))

    async def base(self, topic_id: int) -> tuple[Position, ...]:
        """After `catch_up`: where the reader is, of each publisher; nothing when this hub has
        nothing of the topic yet, and so cannot tell."""
        start = self._starts[topic_id]
        if topic_id not in self._recorded or (not start.after and not start.last):
            return tuple(await self._context.store.positions(topic_id))  # it begins now
        return tuple(at for (topic, _), at in self._last.items() if topic == topic_id)

    async def next(self, queued: Remembered) -> AsyncIterator[Event]:
        """An update that was just recorded, and what comes before it."""
        # Recorded while the history was read, and sent from there already.
        if queued.update.seq <= self._read.get(queued.update.topic_id, 0):
            return
        usual = self._follow(queued)
        if usual is not None:
            yield usual
            return
        async for event in self._send(queued):
            yield event

    async def _resume_log(self) -> dict[int, int]:
        """By topic, the update after which it is read from the history: of all the one that the
        reader had last. Empty when it named none, or one of another log."""
        if self._since is None:
            return {}
        cursor = self._log.read(self._since)
        places = None
        if cursor is not None and not (
            cursor.with_after and not any(each.after for each in self._starts.values())
        ):
            places = await self._context.store.log_places(list(self._starts), cursor.seq)
        if cursor is None or places is None:
            for topic_id, start in self._starts.items():
                self._starts[topic_id] = replace(start, after=(), last=max(1, start.last))
            self._unknown = True
            return {}
        for topic_id, start in self._starts.items():
            self._place_at(start, places[topic_id])
        return dict.fromkeys(self._starts, cursor.seq)

    def _place_at(self, start: Start, place: LogPlace) -> None:
        """The reader has all that the log had of the topic, and what it began with."""
        topic_id = start.topic_id
        at = {each.publisher: each for each in place.positions}
        self._foreign |= any(
            each.publisher not in at and each.publisher not in place.pruned for each in start.after
        )
        for each in start.after:
            if each.publisher not in place.pruned and at.get(each.publisher, each) <= each:
                at[each.publisher] = each
        for publisher, position in at.items():
            self._last[topic_id, publisher] = position
        if place.positions or place.pruned:
            self._recorded.add(topic_id)
        elif start.after:
            self._unsettled[topic_id] = start.after

    async def _begin(self, start: Start, resume: dict[int, int]) -> AsyncIterator[Event]:
        """Notes in `resume` after which update the topic is read from the history; yields what
        comes before that."""
        store, topic_id = self._context.store, start.topic_id
        recorded = self._recent.last_seq
        for each in start.after:
            self._last[topic_id, each.publisher] = each
        known = self._recent.place(topic_id, start.after)
        if known is not None:
            self._recorded.add(topic_id)
            resume[topic_id] = known
            return
        latest = await store.latest(topic_id)
        if latest is not None:
            self._recorded.add(topic_id)
        else:
            lost = next((each for each in start.after if self._was_lost(each, None)), None)
            if start.after and lost is None:
                self._unsettled[topic_id] = start.after
                self._foreign = True
            # Nothing was recorded up to there; what is now comes in its order among the others.
            resume[topic_id] = recorded
            if lost is not None:
                del self._last[topic_id, lost.publisher]
            if lost is not None or self._unknown:
                yield notice_event("reset", start.spelling, lost, None)
            return
        if not start.after:
            before = resume[topic_id] = await self._before_last(latest, start.last)
            if self._unknown:
                first = await self._next(topic_id, before)
                yield notice_event("reset", start.spelling, None, first)
            return
        highest = {each.publisher: each for each in await store.positions(topic_id)}
        unknown = [each for each in start.after if each.publisher not in highest]
        self._foreign |= bool(unknown)
        places = []
        for each in start.after:
            place = await self._place(topic_id, each, highest.get(each.publisher))
            if place is not None:
                places.append(place)
        if places:
            # Should more come of publishers that are not known here, their gaps show then.
            resume[topic_id] = min(places)
            return
        heard = False
        async for event in self._unheard_of(start, unknown):
            heard = True
            yield event
        if heard:
            resume[topic_id] = 0
            return
        before = await self._before_last(latest, max(1, start.last))
        first = await self._next(topic_id, before)
        resume[topic_id] = before
        for each in start.after:
            if each.publisher in highest:
                # It numbers in a higher epoch: said now, and not again.
                del self._last[topic_id, each.publisher]
        yield notice_event("reset", start.spelling, start.after[-1], first)

    def _was_lost(self, after: Position, highest: Position | None) -> bool:
        """Whether this hub numbered the version in an earlier epoch and lost it in a power cut."""
        own = self._context.store.identity
        ours = after.publisher == own.publisher and after.epoch < own.epoch
        return ours and (highest is None or highest < after)

    async def _before_last(self, latest: Update, count: int) -> int:
        """The number before those of a topic's last so many updates."""
        if count == 1:
            return latest.seq - 1
        store = self._context.store
        last = await store.versions(latest.topic_id, count) if count else []
        first = await store.find(latest.topic_id, last[-1].position) if last else None
        return latest.seq if first is None else first - 1

    async def _place(self, topic_id: int, after: Position, highest: Position | None) -> int | None:
        """The update to go on after; None when the reader's numbering does not go on here."""
        store = self._context.store
        found = await store.find(topic_id, after)
        if found is not None or highest is None:
            return found
        if self._was_lost(after, highest):
            return None
        if highest < after:
            # The reader has been at a hub that is ahead of this one: what it has is left out.
            return await store.find(topic_id, highest) or 0
        newer = await store.backlog(topic_id, after.publisher, after, 1)
        if newer and newer[0].position.epoch == after.epoch:
            return 0  # what is missing in between shows when that is sent
        # Of this epoch there is nothing newer here: the same epoch, and all of it has been read
        # before it left the history, or another one.
        return 0 if highest.epoch == after.epoch else None

    def _follow(self, made: Remembered) -> Event | None:
        """The usual case in short: the version that the reader lacks next, and nothing to be said
        before it. None when it is another case."""
        update, position = made.update, made.update.position
        key = (update.topic_id, position.publisher)
        last = self._last.get(key)
        if last is None or not position.directly_follows(last):
            return None
        self._unsettled.pop(update.topic_id, None)
        self._last[key] = position
        return made.event(self._starts[update.topic_id].spelling, self._whole)

    async def _send(self, made: Remembered) -> AsyncIterator[Event]:
        """The update, after what has to be said or sent before it; nothing, if the reader has it
        or something newer of its publisher."""
        update = made.update
        start, position = self._starts[update.topic_id], update.position
        key = (update.topic_id, position.publisher)
        unsettled = self._unsettled.pop(update.topic_id, ())
        last = self._last.get(key)
        if unsettled and last is None:
            async for event in self._strange(start, unsettled, position):
                yield event
        if last is not None and position <= last:
            return
        if last is not None and last.epoch == position.epoch:
            async for event in self._recalled(start, last, position):
                yield event
            last = self._last[key]
            if not position.directly_follows(last):
                yield notice_event("gap", start.spelling, last, position)
        elif last is not None:
            yield notice_event("reset", start.spelling, last, position)
        self._last[key] = position
        yield made.event(start.spelling, self._whole)

    async def _strange(
        self, start: Start, after: tuple[Position, ...], position: Position
    ) -> AsyncIterator[Event]:
        """The first that comes here of a topic is of nobody whom the reader has followed."""
        heard = False
        async for event in self._unheard_of(start, after):
            heard = True
            yield event
        if not heard:
            yield notice_event("reset", start.spelling, after[-1], position)

    async def _unheard_of(self, start: Start, after: Sequence[Position]) -> AsyncIterator[Event]:
        """What came after Positions of publishers that are not known here: of those heard of last,
        which a reader names last, because those of long ago would keep it waiting for nothing."""
        asked = after[-_UNKNOWN:]
        # All at once: the answers serve the questions below.
        await asyncio.gather(
            *(self._recalling.ask(start.topic_id, start.topic, each, None) for each in asked)
        )
        for each in asked:
            async for event in self._recalled(start, each, None):
                yield event

    async def _recalled(
        self, start: Start, after: Position, before: Position | None
    ) -> AsyncIterator[Event]:
        """What can be had of the versions in between, a page at a time, with the gaps in it."""
        key, last = (start.topic_id, after.publisher), after
        left = self._context.settings.history
        while left > 0 and not (before is not None and before.directly_follows(last)):
            page = await self._recalling.ask(start.topic_id, start.topic, last, before)
            if not page.updates:
                return
            left -= len(page.updates)
            for event in page.events(start.spelling, self._whole):
                assert event.update is not None  # of a recall all have one
                position = event.update.position
                if not position.directly_follows(last):
                    kind = "gap" if position.epoch == last.epoch else "reset"
                    yield notice_event(kind, start.spelling, last, position)
                self._last[key] = last = position
                yield event
