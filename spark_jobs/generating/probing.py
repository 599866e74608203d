"""What nodes write down whatever updates there are: clock probes, subscriptions, vain pings."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spark_jobs.generating.crossings import MS, NOTHING_NEW
from spark_jobs.generating.moving import Moving
from spark_jobs.generating.rows import Numbers, Rows, rows, together
from spark_jobs.generating.settings import SECOND, Settings
from spark_jobs.generating.world import World
from traces import Stage

INTERVAL = 2 * SECOND
"""Between two probes of a neighbour, unless that made too large a part of all events."""
LARGEST_PART = 0.2
AFTERWARDS = 15 * SECOND
"""How long nodes go on when nothing is published any more, so that nothing is still on its way."""
LEAVING = 10
"""One in so many subscribers unsubscribes in the end."""


def probes(settings: Settings, world: World, draw: Generator) -> Rows:
    """Each node asks each of its neighbours, over the links that updates take."""
    pairs = np.array([pair for a, b in world.links for pair in ((a, b), (b, a))])
    most = max(2, int(settings.events * LARGEST_PART / len(pairs)))
    span = settings.span_ns + AFTERWARDS
    each = min(most, span // INTERVAL)
    pause = span // each
    count = each * len(pairs)
    node, peer = np.repeat(pairs, each, axis=0).T
    forth = np.array([world.delay_ns[a, b] for a, b in pairs.tolist()])
    back = np.array([world.delay_ns[b, a] for a, b in pairs.tolist()])
    # Traffic in one direction says nothing of that in the other.
    queues = draw.uniform(0.1, 2.0, (2, len(pairs))) * settings.jitter_ms * MS
    phase = np.repeat(draw.integers(0, pause, len(pairs)), each)
    sent = settings.start_ns + phase + np.tile(np.arange(each) * pause, len(pairs))
    sent += draw.integers(0, max(1, pause // 20), count)

    def under_way(least: Numbers, queue: NDArray[np.float64]) -> Numbers:
        waited = draw.exponential(np.repeat(queue, each))
        return np.asarray(np.repeat(least, each) + waited.astype(np.int64))

    came = sent + under_way(forth, queues[0])
    # Half of all hellos answer at once, the others when their time has come.
    at_once = draw.random(count) < 0.5
    answered = came + np.where(
        at_once, draw.integers(5_000, 50_000, count), draw.integers(0, SECOND // 2, count)
    )
    heard = answered + under_way(back, queues[1])
    start = settings.start_ns
    return rows(
        Stage.CLOCK_PROBE, heard, node=node, peer=peer,
        t1=world.wall(node, sent, start), t2=world.wall(peer, came, start),
        t3=world.wall(peer, answered, start), t4=world.wall(node, heard, start),
    )  # fmt: skip


def subscriptions(settings: Settings, world: World, moving: Moving, draw: Generator) -> Rows:
    """Everybody subscribes before anything is published."""
    readers = np.arange(len(world.subscribers))
    clients = np.arange(len(moving.clients)) + len(readers) + 1
    at = settings.start_ns + draw.integers(0, SECOND, len(readers) + len(clients))
    return rows(
        Stage.SUBSCRIBED, at,
        node=[*world.reads_in, *(client.leaves for client in moving.clients)],
        topic=[*world.reads, *(client.topic for client in moving.clients)],
        subscriber=[*readers, *clients],
    )  # fmt: skip


def farewells(world: World, end: int) -> Rows:
    """Some subscribers leave when all is over."""
    gone = np.arange(0, len(world.subscribers), LEAVING)
    at = end + AFTERWARDS + np.arange(len(gone)) * MS
    return rows(
        Stage.UNSUBSCRIBED, at, node=world.reads_in[gone], topic=world.reads[gone], subscriber=gone
    )


def vain_pings(count: int, first: int, last: int, world: World, draw: Generator) -> Rows:
    """So many events of pings that brought nothing new; the last may never have been followed."""
    pings, fetches = count - count // 2, count // 2
    at = np.sort(draw.integers(first, last, pings))
    topic = draw.integers(0, len(world.topics), pings)
    mine = {"update": np.arange(pings), "topic": topic, "node": world.home[topic]}
    fetched = {name: column[:fetches] for name, column in mine.items()}
    return together(
        [
            rows(Stage.PING_RECEIVED, at, **mine),
            rows(Stage.FETCHED, at[:fetches] + 3 * MS, reason=NOTHING_NEW, **fetched),
        ]
    )
