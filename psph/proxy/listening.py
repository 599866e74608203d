"""Listening to topics in the fabric: every version to the hub, once and in order.

The hub recognises what it has; the fabric is told that a version is done when the hub has it for
good.

Several proxies may write a topic in turn, each in a stream of its own. Who begins with a topic,
begins with the latest version of the one that writes it now; what others published in their turns
is old. From then on it is followed `since` that turn: of every other stream, what was published in
later turns is taken up (`turns`), from its first version, however late we hear of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from identifiers import Position, PublisherId, Topic, is_conversation
from psirp_sim.client import Client
from psirp_sim.publications.delivery import Place, Subscription
from psirp_sim.publications.events import Event, Gap, Update
from psirp_sim.runtime.environment import Environment
from psph.proxy.mapping import Mapping
from psph.proxy.ports import Web
from psph.proxy.turns import Verdict, begin_with, judge

PREFIX = b"followed "


@dataclass(slots=True, eq=False)
class Listener:
    """How far we are with one topic."""

    topic: Topic
    subscription: Subscription | None = None
    subscribing: bool = False
    """Whether the hub was asked how far it is, and is to be subscribed for then."""
    streams: set[bytes] = field(default_factory=set)
    """The publishers that the hub has versions of, or is about to."""
    handed_on: dict[PublisherId, Position] = field(default_factory=dict)
    """By publisher, the last version handed to the hub, which may not have stored it yet."""
    held: list[Update] = field(default_factory=list)
    """Of streams that are not taken up yet."""
    old: dict[bytes, Place] = field(default_factory=dict)
    """By publisher, the last place that is known to be of a turn before ours."""
    since: int | None = None
    """The turn since which nothing may be missed; None while nobody was told so. Durable."""
    noting: bool = False
    """Whether that is being written down."""

    def has_begun(self, publisher: bytes, place: Place = (0, 0)) -> bool:
        """Whether a publisher knows of us, and we are done with what comes up to that place."""
        return self.subscription is not None and self.subscription.has_begun(
            self.topic.rid.raw, publisher, place
        )


class Listening:
    """All topics that are listened to."""

    def __init__(
        self,
        env: Environment,
        client: Client,
        mapping: Mapping,
        web: Web,
        counters: Counter[str],
        *,
        turn: Callable[[Topic, Update, int], int | None],
        progress: Callable[[Topic], None],
    ) -> None:
        """`turn` says since which turn a topic is followed, if a version that has the number of
        one is by who writes it now; None if it is not. `progress` is called when a
        condition that a request waits for may have become true."""
        self._env = env
        self._client = client
        self._mapping = mapping
        self._web = web
        self._counters = counters
        self._turn = turn
        self._progress = progress

    def start(self, listener: Listener) -> None:
        """Listen, from where the hub is; again is no harm."""
        if listener.subscription is None and not listener.subscribing:
            listener.subscribing = True
            self._web.positions(listener.topic, partial(self._resume, listener))

    def stop(self, listener: Listener) -> None:
        """Listen no longer."""
        listener.subscribing = False
        if listener.subscription is not None:
            self._client.unsubscribe(listener.subscription)
            listener.subscription.forget()
            listener.subscription = None
        listener.held, listener.streams, listener.old = [], set(), {}
        listener.handed_on = {}

    def forget(self, listener: Listener) -> None:
        """Nobody follows it any more."""
        self._env.storage.write({PREFIX + listener.topic.rid.raw: None})

    def follow(self, listener: Listener, turn: int) -> None:
        """Write down, before anybody is told, that nothing may be missed from now on."""

        def noted() -> None:
            listener.noting = False
            self._progress(listener.topic)

        listener.since, listener.noting = turn, True
        key = PREFIX + listener.topic.rid.raw
        self._env.storage.write({key: msgspec.msgpack.encode(turn)}, noted)

    def _resume(
        self,
        listener: Listener,
        positions: Sequence[Position],
        begin: tuple[PublisherId, Place] | None = None,
    ) -> None:
        """Listen after what the hub has, and `begin` with a place in a stream it has nothing of."""
        if not listener.subscribing:
            return  # it was not wanted any more
        listener.subscribing = False
        topic = listener.topic
        known = {each.publisher: each for each in positions}
        known.pop(self._web.publisher, None)
        for publisher, position in listener.handed_on.items():
            known[publisher] = max(position, known.get(publisher, position))
        after = [*known.values()]
        listener.streams = {each.publisher.raw for each in after}
        stored = self._env.storage.get(PREFIX + topic.rid.raw)
        if stored is not None:
            listener.since = msgspec.msgpack.decode(stored, type=int)
        elif is_conversation(topic.canonical):
            listener.since = 0  # who comes late to it has not read it
        from_first = []
        if begin is not None and begin[0].raw not in listener.streams:
            publisher, (epoch, version) = begin
            if version > 1:
                after.append(Position(publisher, epoch, version - 1))
            else:
                from_first.append((topic.rid.raw, publisher, epoch))
        listener.subscription = self._client.subscribe(
            topic.sid.raw,
            topic.rid.raw,
            partial(self._heard, listener),
            after=[(topic.rid.raw, each) for each in after],
            from_first=from_first,
            # The hub has no position in a stream that is still empty, and yet it has begun.
            durable=topic.rid.raw.hex(),
            by_hand=True,
            name="proxy",
            began=lambda: self._progress(listener.topic),
        )

    def _heard(self, listener: Listener, event: Event) -> None:
        if isinstance(event, Update) and event.publisher != self._web.publisher:
            waits = any(each.publisher == event.publisher for each in listener.held)
            if event.publisher.raw in listener.streams and not waits:
                self._hand_on(listener, event)
            else:
                listener.held.append(event)
                # Later: the fabric has not returned from handing it over.
                self._env.call_later(0, self.take_up, listener)
            return
        if isinstance(event, Gap) and event.publisher.raw not in listener.streams:
            listener.old[event.publisher.raw] = (event.epoch, event.last)
        elif isinstance(event, Gap):
            self._counters["gaps"] += 1
            self._env.log(
                "versions.lost", topic=listener.topic.canonical, first=event.first,
                last=event.last,
            )  # fmt: skip
        self._env.call_later(0, self._done, listener, event)

    def _hand_on(self, listener: Listener, event: Update) -> None:
        update = self._mapping.convert(event)
        if update is None:
            self._env.call_later(0, self._done, listener, event)
            return
        self._counters["received"] += 1
        listener.handed_on[event.publisher] = event.position
        self._web.deliver(listener.topic, update, partial(self._done, listener, event))

    # Taking streams up

    def take_up(self, listener: Listener) -> None:
        """Go on with what waits, as far as it is known what it is."""
        waiting, listener.held = listener.held, []
        for number, event in enumerate(waiting):
            stream, place = event.publisher.raw, (event.position.epoch, event.position.version)
            verdict = self._judge(listener, event)
            if verdict is Verdict.WAITS:
                listener.held.append(event)
            elif verdict is Verdict.OLD:
                listener.old[stream] = place
                self._done(listener, event)
            elif verdict is Verdict.LATE:
                covered = self._mapping.covered(event)
                assert covered is not None
                self._begin_earlier(listener, event.publisher, begin_with(place, covered[0]))
                return
            elif stream in listener.streams:
                self._hand_on(listener, event)
            else:
                listener.streams.add(stream)
                self._hand_on(listener, event)
                # What was not known of those before it may be known now.
                listener.held += waiting[number + 1 :]
                self._env.call_later(0, self.take_up, listener)
                return

    def _judge(self, listener: Listener, event: Update) -> Verdict:
        """What to do with a version that waits."""
        stream, covered = event.publisher.raw, self._mapping.covered(event)
        if covered is None or stream in listener.streams:
            return Verdict.GOOD  # or of somebody without a hub, who has no turns
        if listener.since is not None:
            place = (event.position.epoch, event.position.version)
            return judge(place, covered[1], listener.since, listener.old.get(stream))
        since = self._turn(listener.topic, event, covered[1])
        if since is None:
            return Verdict.WAITS
        self.follow(listener, since)
        return Verdict.GOOD

    def _begin_earlier(self, listener: Listener, publisher: PublisherId, first: Place) -> None:
        """We came late to a stream that goes on where another one ended: listen anew."""
        assert listener.subscription is not None
        self._client.unsubscribe(listener.subscription)
        listener.subscription.forget()
        listener.subscription, listener.held = None, []
        listener.subscribing = True
        self._web.positions(
            listener.topic,
            lambda positions: self._resume(listener, positions, (publisher, first)),
        )

    def _done(self, listener: Listener, event: Event) -> None:
        if listener.subscription is not None:
            listener.subscription.done(event)
        self._progress(listener.topic)
