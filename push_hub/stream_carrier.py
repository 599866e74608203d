"""Brings topics from the hubs of our domain by stream: the carrier of a hub that has a guide.

A hub beside a Pub/Sub Proxy Hub (PSPH) reads topics of zones that have a fabric there, and records
the versions as they come, with the Positions that they have. What is recorded is where a stream
goes on (`after`), so nothing is lost when a PSPH or this hub restarts, or another PSPH takes over.

States of a topic, and what ends each:

LOOKING   the guide is asked which hubs have the topic: its answer
PLAIN     none has it, and this hub follows it like any other: the next check of the guide
JOINING   a PSPH is asked for it: `StreamBase`, or a refusal; until then no callback is confirmed
FOLLOWED  every version comes by stream: the next check of the guide, or the last reader leaves
REFUSED   the PSPH said why not: the next subscriber, or the next check of the guide

A topic joins by a stream of its own, so that one that is slow, or refused, holds up no other; when
many come at once, several join together. Streams that stand are merged into one, of as many topics
as a request line has room for. The merged stream resumes after what is recorded, and the ones it
replaces end when it stands; a version that comes by both is recorded once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import aiohttp

from identifiers import Position, Topic
from push_hub.carrier import Recalled
from push_hub.client.errors import HubRefused
from push_hub.client.streaming import StreamFollower
from push_hub.connecting import exact_url, reason_of
from push_hub.context import Tasks
from push_hub.errors import HubError, Refused, StoreError
from push_hub.fetching import passable_type
from push_hub.following import Way
from push_hub.guide import Guiding
from push_hub.masking import masked_topic
from push_hub.naming import is_web
from push_hub.news import digest_of
from push_hub.retries import RetrySchedule
from push_hub.stream_events import StreamBase, StreamEvent, StreamUpdate
from traces import TRACE_ID_BYTES, LogEvent, new_trace_id

if TYPE_CHECKING:
    from push_hub.hub import Hub

_log = logging.getLogger(__name__)

_JOINS_MAX: Final = 64
"""Streams that join topics at a time."""
_QUERY_BYTES_MAX: Final = 6_000
"""Of topics and Positions in one request: servers take lines of 8,190."""
_TOPICS_MAX: Final = 100
"""Of one stream, as hubs allow by default; fewer once one has refused that many."""
_POSITION_BYTES: Final = 48
_LOOKUPS_MAX: Final = 16
_MERGE_AFTER_S: Final = 1.0
"""Streams are merged so long after one of them stands: each merging is a connection."""
_MERGE_AGAIN_S: Final = 60.0
_TICK_S: Final = 0.5
_ADMITTED_S: Final = 60.0
"""For so long a topic is followed for a subscriber that was admitted and has not confirmed."""
_LINGER_S: Final = 30.0
"""For so long it is followed after the last subscriber has left: one may come back."""
_FETCHED_HERE_S: Final = 10.0
"""For so long at least, if no PSPH takes a ping of it."""
_PING_WAIT_S: Final = 5.0
"""For a topic that is about to be followed."""
_STORE_PAUSE_S: Final = 1.0
_RETRIES: Final = RetrySchedule(first=0.2, factor=2.0, longest=5.0)
_WHOSE: Final = "the hub of our domain"


class State(StrEnum):
    """See above."""

    LOOKING = "looking"
    PLAIN = "plain"
    JOINING = "joining"
    FOLLOWED = "followed"
    REFUSED = "refused"


_DECIDED: Final = frozenset({State.PLAIN, State.FOLLOWED, State.REFUSED})
"""States in which it is known how a subscriber is served."""


@dataclass(eq=False, slots=True)
class _Topic:
    topic: Topic
    new: bool
    """Whether nothing was promised to a subscriber yet: it begins with its current version, and not
    with all that the PSPH keeps."""
    state: State = State.LOOKING
    reason: str = ""
    """Why it is refused."""
    hub: str = ""
    """The hub that the guide names first."""
    stream: _Stream | None = None
    """The one that brings it, or is to."""
    publishers: int = 1
    """Positions that a request for it has."""
    requests: int = 0
    """How often it was asked for."""
    decided: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def canonical(self) -> str:
        return self.topic.canonical

    @property
    def size(self) -> int:
        """Bytes of a request for it, about."""
        positions = _POSITION_BYTES * max(1, self.publishers)
        return len(quote(self.canonical, safe="/:")) + len("&topic=&after=") + positions


@dataclass(eq=False, slots=True)
class _Stream:
    """One follower. A topic of it that is not the carrier's any more is ignored."""

    topics: dict[str, _Topic]
    joining: bool
    """Whether it is one of the few that join topics at a time."""
    replaces: tuple[_Stream, ...]
    hub: str | None = None
    """Where it stands."""
    trouble: str = ""
    """Why it does not, in words."""
    baseless: set[str] = field(default_factory=set)
    """Topics that the hub has not answered for."""
    replaced: bool = False
    """Whether another one is about to take its place."""
    task: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self.task is not None:
            self.task.cancel()


class StreamCarrier:
    """Implements `push_hub.carrier.Carrier`."""

    def __init__(self, hub: Hub, guiding: Guiding, session: aiohttp.ClientSession) -> None:
        """The session has to let any number of streams connect."""
        self._hub = hub
        self._guiding = guiding
        self._session = session
        self._topics: dict[str, _Topic] = {}
        self._streams: set[_Stream] = set()
        self._waiting: deque[_Topic] = deque()
        """Topics that are to join."""
        self._joins = 0
        self._topics_max = _TOPICS_MAX
        self._looking: set[asyncio.Task[None]] = set()
        self._lookups = asyncio.Semaphore(_LOOKUPS_MAX)
        self._doubtful: dict[str, float] = {}
        """By topic: when to see whether anybody still wants it."""
        self._pings: dict[str, bool] = {}
        """Topics whose pings are passed on; whether there was another one since."""
        self._unreached: dict[str, float] = {}
        """Topics that were pinged while no PSPH took a ping, and until when at least each is
        fetched here; longer, while its stream does not stand."""
        self._merge_at: float | None = None
        self._told = False
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to see to topics that are wanted."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """What is recorded is where the next start goes on."""
        await self._tasks.stop()

    async def looked_up(self) -> None:
        """Returns when the guide was asked about every topic there is."""
        if self._looking:
            await asyncio.wait(self._looking)

    # What the hub says

    async def admit(self, topic: Topic, subscriber: str) -> None:
        if not is_web(topic):
            return
        found = self._want(topic, new=True)
        self._doubt(topic, _ADMITTED_S)
        if found.state is State.REFUSED:
            self._look(found)
        await found.decided.wait()
        if found.state is State.REFUSED:
            raise Refused(found.reason)

    def joined(self, topic: Topic, subscriber: str, until: float | None) -> None:
        if is_web(topic):
            # Subscribers of an earlier run were promised the versions since then.
            self._want(topic, new=self._told)

    def left(self, topic: Topic, subscriber: str) -> None:
        self._doubt(topic, _LINGER_S)

    def told(self) -> None:
        self._told = True

    def brings(self, topic: Topic) -> str | None:
        found = self._topics.get(topic.canonical)
        if found is None or topic.canonical in self._unreached:
            return None
        match found.state:
            case State.PLAIN:
                return None
            case State.LOOKING:
                return "about to be looked up, to see whether its zone has a fabric"
            case State.REFUSED:
                return f"{_WHOSE} refuses: {found.reason}"
        stream = found.stream
        if stream is None or stream.hub is None:
            why = "" if stream is None else stream.trouble
            return f"{_WHOSE}, which has not answered yet{why and ': '}{why}"
        if found.state is State.JOINING:
            return f"{_WHOSE} was asked, and has not answered yet: {stream.hub}"
        return f"{_WHOSE}, by stream: {stream.hub}"

    def pinged(self, topic: Topic) -> None:
        under_way = topic.canonical in self._pings
        self._pings[topic.canonical] = True
        if not under_way:
            self._tasks.start(self._pass_on(topic))

    async def recall(
        self, topic: Topic, after: Position, before: Position | None
    ) -> Sequence[Recalled]:
        return ()  # the streams bring all that the PSPH can have

    # Demand

    def _want(self, topic: Topic, *, new: bool) -> _Topic:
        found = self._topics.get(topic.canonical)
        if found is None:
            plain = self._hub.context.naming.plain(topic)
            found = self._topics[topic.canonical] = _Topic(plain, new)
            self._look(found)
        found.requests += 1
        return found

    def _doubt(self, topic: Topic, seconds: float) -> None:
        if topic.canonical in self._topics:
            due = asyncio.get_running_loop().time() + seconds
            self._doubtful[topic.canonical] = max(due, self._doubtful.get(topic.canonical, due))

    async def _release(self) -> None:
        """Stop following topics that have no reader any more."""
        now, watched = asyncio.get_running_loop().time(), self._hub.interest.topics()
        for canonical in [each for each, due in self._doubtful.items() if due <= now]:
            del self._doubtful[canonical]
            found = self._topics.get(canonical)
            if found is None:
                continue
            requests, store = found.requests, self._hub.store
            record = await store.topic(found.topic)
            wanted = record is not None and (
                record.id in watched
                or bool(await store.subscribers(record.id, self._hub.context.clock()))
            )
            # Unless it was asked for again meanwhile.
            if not wanted and self._is_current(found) and found.requests == requests:
                del self._topics[canonical]
                self._unreached.pop(canonical, None)
                self._merge_soon()

    def _is_current(self, topic: _Topic) -> bool:
        return self._topics.get(topic.canonical) is topic

    # Deciding

    def _look(self, topic: _Topic) -> None:
        self._move(topic, State.LOOKING)
        task = self._tasks.start(self._decide(topic))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    def _move(self, topic: _Topic, state: State, reason: str = "") -> None:
        topic.state, topic.reason = state, reason
        if state in _DECIDED:
            topic.decided.set()
        else:
            topic.decided.clear()
        self._hub.carrier_changed(topic.topic)

    async def _decide(self, topic: _Topic) -> None:
        async with self._lookups:
            hubs = await self._guiding.hubs_for(topic.topic)
            if hubs is None and await self._was_carried(topic):
                return  # the next check asks again
        if not self._is_current(topic) or topic.state is not State.LOOKING:
            return
        if not hubs:
            self._move(topic, State.PLAIN)
            return
        topic.hub = hubs[0]
        self._move(topic, State.JOINING)
        self._waiting.append(topic)
        self._join()

    async def _was_carried(self, topic: _Topic) -> bool:
        """Whether a hub of our domain had the topic when the guide could be asked last."""
        with suppress(StoreError):
            record = await self._hub.store.topic(topic.topic)
            following = None if record is None else await self._hub.store.following(record.id)
            return following is not None and following.way is Way.CARRIED
        return False

    async def _check(self) -> None:
        """Ask the guide about all topics: zones get a fabric, and lose it."""
        for each in list(self._topics.values()):
            await asyncio.sleep(0)  # answers may all be known
            if not self._is_current(each):
                continue
            if each.state in (State.LOOKING, State.REFUSED):
                self._look(each)
                continue
            hubs = await self._guiding.hubs_for(each.topic)
            if not self._is_current(each) or hubs is None:
                continue
            if not hubs and each.state is not State.PLAIN:
                # Another object: streams that have the topic ignore it from now on.
                plain = self._topics[each.canonical] = _Topic(each.topic, new=True)
                self._move(plain, State.PLAIN)
                each.decided.set()
                self._merge_soon()
            elif hubs and each.state is State.PLAIN:
                self._look(each)

    # Streams

    def _join(self) -> None:
        """Open streams for the topics that wait, as far as there may be more."""
        while self._waiting and self._joins < _JOINS_MAX:
            first = self._waiting.popleft()
            if not self._is_current(first):
                continue
            batch, size = [first], first.size
            # Alone, while there is room for all that wait.
            most = -(-(len(self._waiting) + 1) // (_JOINS_MAX - self._joins))
            while self._waiting and len(batch) < min(most, self._topics_max):
                other = self._waiting[0]
                size += other.size
                if (other.hub, other.new) != (first.hub, first.new) or size > _QUERY_BYTES_MAX:
                    break
                batch.append(self._waiting.popleft())
            self._joins += 1
            self._open(batch, joining=True)

    def _open(
        self,
        topics: Iterable[_Topic],
        *,
        joining: bool = False,
        replaces: Sequence[_Stream] = (),
    ) -> None:
        stream = _Stream({each.canonical: each for each in topics}, joining, tuple(replaces))
        stream.baseless = set(stream.topics)
        self._streams.add(stream)
        for old in replaces:
            old.replaced = True
        for each in stream.topics.values():
            if not replaces:
                each.stream = stream
        stream.task = self._tasks.start(self._read(stream))

    async def _read(self, stream: _Stream) -> None:
        first = next(iter(stream.topics.values()))
        known = [first.hub]

        async def hubs() -> list[str]:
            nonlocal known
            current = next(filter(self._is_current, stream.topics.values()), first)
            found = await self._guiding.hubs_for(current.topic)
            known = known if found is None else found
            # Streams that it replaces are there already.
            there = stream.replaces[0].hub if stream.replaces else None
            return sorted(known, key=lambda hub: hub != there)

        try:
            after = {name: await self._positions(each) for name, each in stream.topics.items()}
            async with StreamFollower(
                list(stream.topics), hubs, after=after, base=True, session=self._session,
                retries=_RETRIES, last=1 if first.new else None, told=partial(self._said, stream),
                worked=partial(self._on_connected, stream),
                failed=partial(self._on_disconnected, stream),
            ) as follower:  # fmt: skip
                async for said in follower:
                    await self._on_event(stream, said)
        except HubRefused as refusal:
            self._on_refused(stream, str(refusal))
        finally:
            self._streams.discard(stream)
            for old in stream.replaces:
                old.replaced = False
            self._end_joining(stream)

    async def _positions(self, topic: _Topic) -> tuple[Position, ...]:
        """The Positions of other publishers that are recorded here."""
        while True:
            try:
                known = await self._hub.positions(topic.topic)
                break
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
                await asyncio.sleep(_STORE_PAUSE_S)
        own = self._hub.store.identity.publisher
        found = tuple(each for each in known if each.publisher != own)
        topic.publishers = len(found)
        return found

    def _end_joining(self, stream: _Stream) -> None:
        if stream.joining:
            stream.joining = False
            self._joins -= 1
            self._join()

    def _said(self, stream: _Stream, words: str) -> None:
        stream.trouble = words
        _log.info(LogEvent("stream.changed", reason=words, topics=len(stream.topics)))

    def _on_connected(self, stream: _Stream, hub: str) -> None:
        stream.hub = hub
        self._guiding.worked(hub)
        self._merge_soon()

    def _on_disconnected(self, stream: _Stream, hub: str) -> None:
        if stream.hub is not None:
            stream.hub = None
            self._hub.counters.add("upstream_broken")
        self._guiding.failed(hub)

    def _on_refused(self, stream: _Stream, words: str) -> None:
        """A request that the hub does not take: too large, or one of its topics is refused."""
        topics = [each for each in stream.topics.values() if self._is_current(each)]
        if stream.replaces:
            self._topics_max = max(_TOPICS_MAX // 10, len(topics) // 2)
            self._merge_at = asyncio.get_running_loop().time() + _MERGE_AGAIN_S
        elif len(topics) > 1:
            half = len(topics) // 2
            self._open(topics[:half])
            self._open(topics[half:])
        elif topics:
            reason = words.partition(" refuses: ")[2] or words
            self._move(topics[0], State.REFUSED, reason)

    async def _on_event(self, stream: _Stream, said: StreamEvent) -> None:
        topic = stream.topics[said.topic]  # the follower knows no others
        if isinstance(said, StreamBase):
            self._on_base(stream, topic)
        elif not self._is_current(topic):
            pass
        elif isinstance(said, StreamUpdate):
            await self._record(topic, said)
        else:
            _log.warning(
                LogEvent(
                    "versions.missing", topic=masked_topic(said.topic), after=said.after,
                    resumes=said.resumes,
                )
            )  # fmt: skip

    def _on_base(self, stream: _Stream, topic: _Topic) -> None:
        stream.baseless.discard(topic.canonical)
        topic.new = False
        if self._is_current(topic):
            topic.stream = stream
            if topic.state is not State.FOLLOWED:
                self._move(topic, State.FOLLOWED)
        if stream.baseless:
            return
        for old in stream.replaces:
            old.end()
        self._end_joining(stream)
        self._merge_soon()

    async def _record(self, topic: _Topic, update: StreamUpdate) -> None:
        store, position = self._hub.store, update.position
        if position.publisher == store.identity.publisher:
            return  # numbered here, and come back
        if max(position.epoch, position.version) >= 1 << 63:
            reason = "no hub numbers as far"
            _log.error(LogEvent("update.refused", position=position, reason=reason))
            return
        while True:
            try:
                known = await store.topic(topic.topic)
                # Fetched here because of a ping while no PSPH could be reached: no news.
                repeats = (
                    known is not None
                    and known.last_ping_at is not None
                    and known.digest == digest_of(update.content)
                )
                await self._hub.accept(
                    topic.topic, passable_type(update.content_type), update.content,
                    position=position, published=not repeats,
                    trace_id=update.trace_id or new_trace_id(secrets.token_bytes(TRACE_ID_BYTES)),
                )  # fmt: skip
                return
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))
                await asyncio.sleep(_STORE_PAUSE_S)
            except Exception:
                _log.exception(LogEvent("update.failed", position=position))
                return

    def _merge_soon(self) -> None:
        if self._merge_at is None:
            self._merge_at = asyncio.get_running_loop().time() + _MERGE_AFTER_S

    def _merge(self) -> None:
        """Make one stream of several that stand at the same hub, as far as they fit."""
        by_hub: dict[str, list[_Stream]] = {}
        for each in self._streams:
            if not any(map(self._is_current, each.topics.values())):
                each.end()
            elif each.hub is not None and not each.baseless and not each.replaced:
                by_hub.setdefault(each.hub, []).append(each)
        for streams in by_hub.values():
            taken: list[_Stream] = []
            topics: list[_Topic] = []
            size = 0
            for stream in sorted(streams, key=lambda each: len(each.topics)):
                live = [each for each in stream.topics.values() if self._is_current(each)]
                size += sum(each.size for each in live)
                if size > _QUERY_BYTES_MAX or len(topics) + len(live) > self._topics_max:
                    break
                taken.append(stream)
                topics += live
            if len(taken) > 1 or (taken and 2 * len(topics) < len(taken[0].topics)):
                self._open(topics, replaces=taken)

    async def _run(self) -> None:
        """Runs until cancelled."""
        every, time = self._hub.settings.guide_check, asyncio.get_running_loop().time
        tick = min(_TICK_S, every or _TICK_S)
        check_at = time() + (every or 0.0)
        while True:
            await asyncio.sleep(tick)
            try:
                await self._release()
                self._give_back(time())
                if self._merge_at is not None and time() >= self._merge_at:
                    self._merge_at = None
                    self._merge()
                if every is not None and time() >= check_at:
                    await self._check()
                    check_at = time() + every
            except StoreError as error:
                _log.error(LogEvent("store.failed", reason=error))

    # Pings

    def _give_back(self, now: float) -> None:
        """Topics that were fetched here while no PSPH took a ping come by stream again."""
        for canonical in [each for each, due in self._unreached.items() if due <= now]:
            found = self._topics[canonical]
            if found.stream is not None and found.stream.hub is not None:
                del self._unreached[canonical]
                self._hub.carrier_changed(found.topic)

    async def _pass_on(self, topic: Topic) -> None:
        """A ping belongs to the PSPH, which numbers what it fetches. Where none can be reached the
        topic is fetched here: local readers do not depend on a PSPH."""
        canonical = topic.canonical
        try:
            while self._pings[canonical]:
                self._pings[canonical] = False
                found = self._topics.get(canonical)
                if found is not None and not await self._ping(found) and self._is_current(found):
                    now = asyncio.get_running_loop().time()
                    self._unreached[canonical] = now + _FETCHED_HERE_S
                if self.brings(topic) is None:
                    await self._hub.ping((topic,))
        except HubError as error:
            _log.error(LogEvent("ping.lost", topic=masked_topic(canonical), reason=error))
        finally:
            del self._pings[canonical]

    async def _ping(self, topic: _Topic) -> bool:
        """Whether the hub that the topic comes from took the ping."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PING_WAIT_S):
                await topic.decided.wait()
        hub = None if topic.stream is None else topic.stream.hub
        if hub is None or topic.state is State.PLAIN:
            return False
        form = {"hub.mode": "publish", "hub.url": topic.canonical}
        try:
            async with self._session.post(
                exact_url(hub), data=form, allow_redirects=False
            ) as answer:
                if 200 <= answer.status < 300:
                    return True
                words = f"it answered {answer.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            words = reason_of(error)
        _log.warning(LogEvent("ping.refused", hub=hub, reason=words))
        return False
