"""Updates on their way: pinged, fetched, published, delivered elsewhere, pushed to readers.

What goes wrong is drawn here, and all that a table about it could say is kept: the `Deliveries`
of each update to each domain that wants it, and the `Sends` to each subscriber there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spark_jobs.generating.lanes import count_up, following, in_turn, overtaken
from spark_jobs.generating.rows import NONE, Flags, Numbers, Rows, rows, together
from spark_jobs.generating.settings import SECOND, Settings
from spark_jobs.generating.world import World
from traces import Stage

MS = 1_000_000
SAMPLED = 256
"""One in so many publications is traced on its way, as fabric nodes do it."""
PACKET = 1_280
REASONS = ("nothing new", "the callback answered 503", "spoiled")
NOTHING_NEW, REFUSED, SPOILED = range(3)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """One row for each update and each domain with readers of its topic; times are true."""

    update: Numbers
    domain: Numbers
    delivered: Numbers
    """NONE: lost on the way."""
    copies: Numbers
    late: Flags


@dataclass(frozen=True, slots=True)
class Sends:
    """One row for each update and each subscriber of its topic; times are true."""

    update: Numbers
    subscriber: Numbers
    domain: Numbers
    stream: Flags
    sent: Numbers
    """NONE: the subscriber never got it."""
    copies: Numbers
    failures: Numbers
    late: Flags
    buffered: Flags
    """Whether it had to wait for a client that moved."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some updates, by number: a piece of the world that fits into memory."""

    trace_ids: NDArray[np.uint8]
    topic: Numbers
    version: Numbers
    size: Numbers
    pinged: Numbers
    fetched: Numbers
    published: Numbers
    deliveries: Deliveries
    sends: Sends
    rows: Rows


T = TypeVar("T", Deliveries, Sends)


def chosen(table: T, which: Flags | Numbers) -> T:
    """Those rows of a table."""
    return type(table)(*(getattr(table, field.name)[which] for field in fields(table)))


class Crossings:
    """Makes updates, piece after piece; remembers how far each topic and each lane has come."""

    def __init__(self, settings: Settings, world: World, draw: Generator) -> None:
        self._settings = settings
        self._world = world
        self._draw = draw
        topics, domains = len(world.topics), len(world.domains)
        self._versions = np.zeros(topics, dtype=np.int64)
        self._fetched_until = np.zeros(topics, dtype=np.int64)
        self._published_until = np.zeros(topics, dtype=np.int64)
        self._delivered_until = np.zeros(topics * domains, dtype=np.int64)
        self._sent_until = np.zeros(len(world.subscribers), dtype=np.int64)
        self.now = settings.start_ns + SECOND

    def events_per_update(self) -> float:
        """Roughly, from who reads what."""
        everyone = np.arange(len(self._world.topics))
        domains = len(self._world.domains)
        keys, receivers = self._world.receivers.of(everyone)
        reads, _ = self._world.readers.of(keys * domains + receivers)
        counts = 3 + np.bincount(keys, minlength=len(everyone)).astype(float)
        counts += np.bincount(keys[reads], minlength=len(everyone))
        return float(counts @ self._world.share)

    def next_piece(self, updates: int, gap_ns: float) -> Piece:
        """So many more updates, `gap_ns` apart on average."""
        draw, world = self._draw, self._world
        pinged = self.now + np.cumsum(draw.exponential(gap_ns, updates)).astype(np.int64)
        self.now = int(pinged[-1])
        topic = draw.choice(len(world.topics), updates, p=world.share)
        version = self._versions[topic] + 1 + count_up(topic)
        np.maximum.at(self._versions, topic, version)
        fetched = in_turn(topic, version, pinged + self._took(3.0, 0.6, updates),
                          self._fetched_until)  # fmt: skip
        np.maximum.at(self._fetched_until, topic, fetched)
        published = in_turn(topic, version, fetched + self._took(0.4, 0.5, updates),
                            self._published_until)  # fmt: skip
        np.maximum.at(self._published_until, topic, published)
        size = self._took(1.5, 0.7, updates) // 1_000
        about = {"topic": topic, "version": version, "size": size}
        home = world.home[topic]
        mine = {**about, "update": np.arange(updates), "node": home}
        deliveries, delivered = self._deliver(topic, version, published, about)
        sends, sent = self._send(deliveries, published, about)
        return Piece(
            trace_ids=draw.integers(0, 256, (updates, 16), dtype=np.uint8),
            pinged=pinged,
            fetched=fetched,
            published=published,
            deliveries=deliveries,
            sends=sends,
            rows=together(
                [
                    rows(
                        Stage.PING_RECEIVED,
                        pinged,
                        update=mine["update"],
                        topic=topic,
                        node=home,
                    ),
                    rows(Stage.FETCHED, fetched, **mine),
                    rows(Stage.PUBLISHED, published, **mine, named=1),
                    *delivered,
                    *self._forwarded(deliveries, about, published),
                    *sent,
                ]
            ),
            **about,
        )

    def _deliver(
        self, topic: Numbers, version: Numbers, published: Numbers, about: dict[str, Numbers]
    ) -> tuple[Deliveries, list[Rows]]:
        world, settings, draw = self._world, self._settings, self._draw
        update, domain = world.receivers.of(topic)
        home = world.home[topic[update]]
        lane = topic[update] * len(world.domains) + domain
        lost = (domain != home) & (draw.random(len(update)) < settings.loss)
        takes = world.way_ns[home, domain] + self._took(0.4, 0.6, len(update))
        came = np.flatnonzero(~lost)
        lane_came, number = lane[came], version[update[came]]
        at = in_turn(lane_came, number, published[update[came]] + takes[came],
                     self._delivered_until)  # fmt: skip
        behind = following(lane_came, number)
        delayed = (behind != NONE) & (draw.random(len(came)) < settings.reorder)
        delayed &= (domain != home)[came]
        at = np.where(delayed, at[behind] + draw.integers(MS // 5, MS, len(came)), at)
        np.maximum.at(self._delivered_until, lane_came, at)
        delivered = np.full(len(update), NONE)
        delivered[came] = at
        late = overtaken(lane, delivered, version[update])
        twice = ~lost & (draw.random(len(update)) < settings.duplicates)
        table = Deliveries(update, domain, delivered, np.where(lost, 0, 1) + twice, late)
        dropped = lost & (draw.random(len(update)) < 0.5)
        made = []
        for stage, which, after, reason in (
            (Stage.DELIVERED, ~lost, delivered, NONE),
            (Stage.DELIVERED, twice, delivered + self._took(5.0, 0.5, len(update)), NONE),
            (Stage.DROPPED, dropped, published[update] + takes, SPOILED),
        ):
            who = update[which]
            made.append(
                rows(
                    stage, after[which], update=who, node=domain[which], named=1, reason=reason,
                    subscriber=len(world.subscribers) if stage is Stage.DELIVERED else NONE,
                    **{name: column[who] for name, column in about.items()},
                )
            )  # fmt: skip
        return table, made

    def _send(
        self, deliveries: Deliveries, published: Numbers, about: dict[str, Numbers]
    ) -> tuple[Sends, list[Rows]]:
        world, settings, draw = self._world, self._settings, self._draw
        topic = about["topic"][deliveries.update]
        delivery, subscriber = world.readers.of(topic * len(world.domains) + deliveries.domain)
        update, arrived = deliveries.update[delivery], deliveries.delivered[delivery]
        never = arrived == NONE
        arrived = np.where(never, published[update], arrived)
        stream = world.streams[subscriber]
        failed = ~stream & ~never & (draw.random(len(update)) < settings.failures)
        failures = failed.astype(np.int64)
        lost = never | (draw.random(len(update)) < settings.loss)
        takes = np.where(stream, self._took(0.3, 0.5, len(update)),
                         self._took(2.0, 0.8, len(update)))  # fmt: skip
        again = failures * draw.integers(20 * MS, 500 * MS, len(update))
        at = in_turn(subscriber, arrived, arrived + takes + again, self._sent_until)
        np.maximum.at(self._sent_until, subscriber, at)
        sent = np.where(lost, NONE, at)
        late = overtaken(subscriber, sent, about["version"][update])
        twice = ~lost & (draw.random(len(update)) < settings.duplicates)
        table = Sends(
            update=update,
            subscriber=subscriber,
            domain=deliveries.domain[delivery],
            stream=stream,
            sent=sent,
            copies=np.where(lost, 0, 1) + twice,
            failures=failures,
            late=late,
            buffered=np.zeros(len(update), dtype=bool),
        )
        made = []
        for happened, when, reason in (
            (~lost, at, NONE),
            (twice, at + self._took(5.0, 0.5, len(update)), NONE),
            (failures > 0, at - again, REFUSED),
        ):
            for stage, kind in ((Stage.PUSHED, ~stream), (Stage.BROWSER_SENT, stream)):
                these = happened & kind
                who = update[these]
                made.append(
                    rows(
                        stage, when[these], update=who, node=table.domain[these], reason=reason,
                        subscriber=subscriber[these],
                        **{name: column[who] for name, column in about.items()},
                    )
                )  # fmt: skip
        return table, made

    def _forwarded(
        self, deliveries: Deliveries, about: dict[str, Numbers], published: Numbers
    ) -> list[Rows]:
        """One packet of a sampled update at every node that sends it on; few, so one by one."""
        world = self._world
        seen: dict[tuple[int, int, int], int] = {}
        sampled = deliveries.update % SAMPLED == 0
        for update, domain in zip(
            deliveries.update[sampled].tolist(), deliveries.domain[sampled].tolist(), strict=True
        ):
            way = world.routes[int(world.home[about["topic"][update]]), domain]
            at = int(published[update])
            for node, peer in pairwise(way):
                at += 20_000
                seen.setdefault((update, node, peer), at)
                at += world.delay_ns[node, peer]
        if not seen:
            return []
        update, node, peer = np.array(list(seen)).T
        return [
            rows(
                Stage.FORWARDED, np.array(list(seen.values())), node=node, peer=peer, named=1,
                size=np.minimum(about["size"][update], PACKET), topic=about["topic"][update],
                update=update,
            )
        ]  # fmt: skip

    def _took(self, median_ms: float, spread: float, count: int) -> Numbers:
        """Times with a long tail, as things on a network take."""
        return (self._draw.lognormal(np.log(median_ms), spread, count) * MS).astype(np.int64)
