"""Clients that move once from one domain to another while their topic goes on.

What came while a client was away waits at the proxy it left and is sent at the new place between
the begin and the end of the move in. A client gets versions in order; hand-offs lose and double
more than anything else does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from spark_jobs.generating.crossings import MS, Piece, Sends
from spark_jobs.generating.lanes import GAP, in_turn
from spark_jobs.generating.rows import NONE, Numbers, Rows, rows, together
from spark_jobs.generating.settings import SECOND, Settings
from spark_jobs.generating.world import World
from traces import Stage

MORE = 20
"""How much more often than anything else a hand-off loses or doubles an update."""


@dataclass(slots=True)
class Client:
    """Who moves, when, and what became of it; times are true."""

    name: str
    topic: int
    leaves: int
    """A domain, as is `enters`."""
    enters: int
    out: int
    begin: int
    end: int
    trace_id: bytes
    buffered: int = 0
    bytes: int = 0
    lost: int = 0
    doubled: int = 0


class Moving:
    """All clients that move, and how far each has come."""

    def __init__(self, settings: Settings, world: World, draw: Generator) -> None:
        self._settings = settings
        self._world = world
        self._draw = draw
        self._first = len(world.subscribers) + 1
        """The numbers of clients follow those of subscribers and of the proxies'."""
        domains = len(world.domains)
        self.clients = []
        for number in range(settings.handoff_count):
            leaves, enters = draw.choice(domains, 2, replace=False).tolist()
            out = settings.start_ns + int(draw.uniform(0.2, 0.6) * settings.span_ns)
            begin = out + int(draw.uniform(0.05, 0.1) * min(settings.span_ns, 150 * SECOND))
            self.clients.append(
                Client(
                    name=f"client-{number}",
                    topic=number % min(2, len(world.topics)),  # those that are received everywhere
                    leaves=leaves,
                    enters=enters,
                    out=out,
                    begin=begin,
                    end=begin + int(draw.uniform(40, 400) * MS),
                    trace_id=draw.bytes(16),
                )
            )
        self._sent_until = np.zeros(len(self.clients), dtype=np.int64)

    def follow(self, piece: Piece) -> Piece:
        """The piece with what it sends to these clients."""
        if not self.clients:
            return piece
        found = [self._follow(number, piece) for number in range(len(self.clients))]
        tables = [piece.sends, *(table for table, _ in found)]
        sends = Sends(
            *(np.concatenate([getattr(t, name) for t in tables]) for name in Sends.__slots__)
        )
        return replace(
            piece, sends=sends, rows=together([piece.rows, *(r for _, more in found for r in more)])
        )

    def _follow(self, number: int, piece: Piece) -> tuple[Sends, list[Rows]]:
        client, draw = self.clients[number], self._draw
        update = np.flatnonzero(piece.topic == client.topic)
        here = _arrivals(client.leaves, piece)[update]
        there = _arrivals(client.enters, piece)[update]
        published = piece.published[update]
        live_there = np.where(there == NONE, published, there) >= client.end
        never = np.where(live_there, there, here) == NONE
        here, there = (np.where(each == NONE, published, each) for each in (here, there))
        waits = (here > client.out) & ~live_there & ~never
        share = np.clip((here - client.out) / (client.end - client.out), 0, 1)
        catching_up = client.begin + (share * (client.end - client.begin)).astype(np.int64)
        at = np.where(waits, catching_up, np.where(live_there, there, here) + MS // 4)
        version = piece.version[update]
        at = in_turn(np.full(len(update), number), version, at, self._sent_until)
        if len(at):
            self._sent_until[number] = at.max()
        lost = never | waits & (draw.random(len(update)) < min(0.5, MORE * self._settings.loss))
        twice = waits & ~lost & (
            draw.random(len(update)) < min(0.5, MORE * self._settings.duplicates)
        )  # fmt: skip
        where = np.where(waits | live_there, client.enters, client.leaves)
        subscriber = np.full(len(update), self._first + number)
        table = Sends(
            update=update,
            subscriber=subscriber,
            domain=where,
            stream=np.ones(len(update), dtype=bool),
            sent=np.where(lost, NONE, at),
            copies=np.where(lost, 0, 1) + twice,
            failures=np.zeros(len(update), dtype=np.int64),
            late=np.zeros(len(update), dtype=bool),
            buffered=waits,
        )
        made = []
        for happened, when in ((~lost, at), (twice, at + GAP // 2)):
            who = update[happened]
            made.append(
                rows(
                    Stage.BROWSER_SENT, when[happened], update=who, node=where[happened],
                    topic=client.topic, version=piece.version[who], size=piece.size[who],
                    subscriber=self._first + number,
                )
            )  # fmt: skip
        return table, made

    def account(self, piece: Piece) -> None:
        """Remember what of the piece had to wait for whom."""
        sends = piece.sends
        waited = np.flatnonzero(sends.buffered)
        for number, client in enumerate(self.clients):
            mine = waited[sends.subscriber[waited] == self._first + number]
            client.buffered += len(mine)
            client.bytes += int(piece.size[sends.update[mine]].sum())
            client.lost += int((sends.copies[mine] == 0).sum())
            client.doubled += int((sends.copies[mine] > 1).sum())

    def moves(self, after: int, until: int) -> tuple[Rows, list[bytes]]:
        """The moves of that time, and the trace ids that their rows count through."""
        made = [rows(Stage.MOVE_OUT, np.zeros(0, dtype=np.int64))]
        traces: list[bytes] = []
        for number, client in enumerate(self.clients):
            subscriber = self._first + number
            for stage, at, node, more in (
                (Stage.MOVE_OUT, client.out, client.leaves, {}),
                (Stage.MOVE_IN_BEGIN, client.begin, client.enters, {"update": len(traces)}),
                (
                    Stage.MOVE_IN_END, client.end, client.enters,
                    {"update": len(traces), "peer": client.leaves, "size": client.bytes},
                ),
            ):  # fmt: skip
                if after < at <= until:
                    made.append(
                        rows(stage, np.array([at]), node=node, subscriber=subscriber, **more)
                    )
            traces.append(client.trace_id)
        return together(made), traces


def _arrivals(domain: int, piece: Piece) -> Numbers:
    """By update: when it came to the domain; NONE where it never did."""
    arrivals = np.full(len(piece.topic), NONE)
    there = piece.deliveries.domain == domain
    arrivals[piece.deliveries.update[there]] = piece.deliveries.delivered[there]
    return arrivals
