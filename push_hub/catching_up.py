"""What the hub of our domain pushes is recorded in order, and what was missed before it first.

A hub that a guide named numbers its updates. When another one takes its place, because it died, the
first thing to come may be versions later than the last: they are had by stream, after the Positions
recorded here, from the new one. That is done as soon as the new subscription stands, and whenever a
push does not follow directly on what is there. What even that hub cannot have any more stays a gap.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import aiohttp

from identifiers import Position, identify
from push_hub.connecting import exact_url, reason_of
from push_hub.context import Context, Tasks
from push_hub.errors import HubError, NotYet, StoreError
from push_hub.event_stream import CAUGHT_UP, EventReader
from push_hub.following import Following
from push_hub.intake import Intake
from push_hub.news import digest_of
from push_hub.store.records import Origin, TopicRecord
from push_hub.stream_events import StreamUpdate, read_stream_event
from traces import TRACE_ID_BYTES, LogEvent, new_trace_id

_log = logging.getLogger(__name__)

_LINGER = 2.0
"""Seconds that a stream is read on after it has caught up: the hub that confirmed our subscription
may note it only now."""
_AGAIN = 30.0
"""Seconds after which it is asked once more, should it have taken longer than that."""
_PATIENCE = 8.0
"""Seconds for what is missing before a push: its hub waits for our answer."""
_LONGEST = 120.0
"""Seconds for one stream of several topics to catch up."""
_AT_ONCE = 8
_QUERY = 6_000
"""Bytes of topics and Positions that go into one request."""
_PAUSES = (1.0, 5.0, 20.0)
"""Seconds after which a stream that could not be had is tried again."""

_TRIES = 3
"""Attempts to have what is missing before a push, each time its hub sends that again."""


class _NoStream(HubError):
    """A hub that is none of ours."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A topic that may lack versions; `url` is what its hub calls it."""

    topic_id: int
    url: str
    after: tuple[Position, ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return ("topic", self.url), ("after", ",".join(map(str, self.after)))

    @property
    def size(self) -> int:
        """In a request, at most."""
        return sum(3 * len(value.encode()) for _, value in self.pairs)


class CatchingUp:
    """Streams from hubs that a guide named, for a moment each."""

    def __init__(self, context: Context, session: aiohttp.ClientSession, intake: Intake) -> None:
        self._context = context
        self._session = session
        self._intake = intake
        self._waiting: dict[str, deque[Missing]] = {}
        self._tries: dict[int, int] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks = Tasks()

    async def stop(self) -> None:
        """What is missing is noticed again with the next push."""
        await self._tasks.stop()

    async def begin(self, record: Following) -> None:
        """A subscription stands: have what was missed before it, if anything was here before."""
        missing = await self._missing(record)
        if missing is None or record.hub is None:
            return
        waiting = self._waiting.get(record.hub)
        if waiting is None:
            self._waiting[record.hub] = waiting = deque()
            self._tasks.start(self._drain(record.hub, waiting))
        waiting.append(missing)

    async def take(
        self, record: Following, content_type: str, body: bytes, position: Position
    ) -> bool:
        """A push that has a number, recorded after what is missing before it. False when nobody
        knows the topic any more; NotYet when what is missing could not be had just now."""
        missing = await self._missing(record)
        if missing is not None and record.hub is not None and _misses(missing.after, position):
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._read(record.hub, [missing], position)
            except _NoStream:
                pass  # a hub of another kind: it has nothing that could be asked for
            except StoreError:
                raise
            except (aiohttp.ClientError, OSError, ValueError, HubError) as error:
                self._try_again(record.topic_id, position, error)
        self._tries.pop(record.topic_id, None)
        return await self._record(record.topic_id, content_type, body, position)

    def _try_again(self, topic_id: int, position: Position, error: Exception) -> None:
        """A few times: then what is there counts more than what is not."""
        tries = self._tries[topic_id] = self._tries.get(topic_id, 0) + 1
        words = str(error) if isinstance(error, HubError) else reason_of(error)
        _log.warning(LogEvent("versions.missing", before=position, reason=words))
        if tries < _TRIES:
            raise NotYet("what comes before it has to be had first")

    async def _missing(self, record: Following) -> Missing | None:
        found = await self._current(Missing(record.topic_id, record.self_url or "", ()))
        return found if found.after else None

    async def _drain(self, hub: str, waiting: deque[Missing]) -> None:
        """Several topics in one stream, several streams at a time, until none waits."""
        try:
            # Topics move together: those that come in a moment share the stream.
            await asyncio.sleep(0.05)
            while waiting:
                await self._slots.acquire()
                self._tasks.start(self._catch_up(hub, _batch(waiting), again=True))
        finally:
            del self._waiting[hub]

    async def _look_again(self, hub: str, topics: Sequence[Missing]) -> None:
        await asyncio.sleep(_AGAIN)
        found = [await self._current(each) for each in topics]
        await self._slots.acquire()
        self._tasks.start(self._catch_up(hub, found, again=False))

    async def _current(self, missing: Missing) -> Missing:
        own = self._context.store.identity.publisher
        known = await self._context.store.positions(missing.topic_id)
        after = tuple(each for each in known if each.publisher != own)
        return replace(missing, after=after or missing.after)

    async def _catch_up(self, hub: str, topics: Sequence[Missing], *, again: bool) -> None:
        try:
            for pause in (*_PAUSES, None):
                try:
                    async with asyncio.timeout(_LONGEST):
                        count = await self._read(hub, topics, None)
                    _log.info(LogEvent("hub.caught_up", hub=hub, topics=len(topics), updates=count))
                    if again:
                        self._tasks.start(self._look_again(hub, topics))
                    return
                except (aiohttp.ClientError, OSError, ValueError, HubError) as error:
                    _log.warning(LogEvent("catch_up.failed", hub=hub, reason=reason_of(error)))
                if pause is not None:
                    await asyncio.sleep(pause)
        finally:
            self._slots.release()

    async def _read(self, hub: str, topics: Sequence[Missing], until: Position | None) -> int:
        """Record what a stream of the topics has, up to a Position, or to its end for now."""
        pairs = [each.pairs for each in topics]
        query = [pair[0] for pair in pairs] + [pair[1] for pair in pairs] + [("content", "whole")]
        url = exact_url(f"{hub.removesuffix('/hub')}/stream").with_query(query)
        ids = {each.url: each.topic_id for each in topics}
        reader, count, linger = EventReader(), 0, None
        async with self._session.get(
            url, allow_redirects=False, timeout=aiohttp.ClientTimeout(sock_connect=_PATIENCE)
        ) as answer:
            if answer.status in (404, 405):
                raise _NoStream("it has no streams")
            if answer.status != 200:
                raise HubError(f"it answered {answer.status}")
            try:
                while True:
                    async with asyncio.timeout_at(linger):
                        chunk = await answer.content.readany()
                    if not chunk:
                        raise HubError("the stream ended")
                    for said in reader.feed(chunk):
                        update = read_stream_event(said)
                        if isinstance(update, StreamUpdate) and update.topic in ids:
                            await self._record(
                                ids[update.topic], update.content_type, update.content,
                                update.position, update.trace_id,
                            )  # fmt: skip
                            count += 1
                            if until is not None and _reaches(update.position, until):
                                return count
                        elif said.kind == "" and said.data == CAUGHT_UP:
                            if until is not None:
                                return count
                            linger = asyncio.get_running_loop().time() + _LINGER
            except TimeoutError:
                if linger is None:
                    raise
                return count

    async def _record(
        self, topic_id: int, content_type: str, body: bytes, position: Position, trace_id: str = ""
    ) -> bool:
        context = self._context
        topic = await context.store.topic_by_id(topic_id)
        if topic is None:
            return False
        if self._had(topic, body, position):
            return True
        await self._intake.accept(
            identify(topic.canonical), content_type, body, Origin.RECEIVED_PUBLISHED,
            trace_id or new_trace_id(secrets.token_bytes(TRACE_ID_BYTES)), position,
        )  # fmt: skip
        return True

    def _had(self, topic: TopicRecord, body: bytes, position: Position) -> bool:
        """Pinged and fetched here first, or our own that comes back."""
        known = topic.last_ping_at is not None and topic.digest == digest_of(body)
        return known or position.publisher == self._context.store.identity.publisher


def _misses(known: Iterable[Position], position: Position) -> bool:
    """Whether there may be versions between what is known and this one."""
    same = [each for each in known if each.publisher == position.publisher]
    return not any(position <= each or position.directly_follows(each) for each in same)


def _reaches(position: Position, until: Position) -> bool:
    return position.publisher == until.publisher and position >= until


def _batch(waiting: deque[Missing]) -> list[Missing]:
    """As many as fit one request; one, whatever its size."""
    taken = [waiting.popleft()]
    size = taken[0].size
    while waiting and size + waiting[0].size <= _QUERY and len(taken) < 50:
        taken.append(waiting.popleft())
        size += taken[-1].size
    return taken
