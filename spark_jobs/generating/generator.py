"""All of it: a world, piece by piece, until there are exactly as many events as were asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spark_jobs.generating import probing
from spark_jobs.generating.crossings import Crossings, Piece, chosen
from spark_jobs.generating.lanes import overtaken
from spark_jobs.generating.moving import Moving
from spark_jobs.generating.rows import NONE, Rows, together
from spark_jobs.generating.settings import SECOND, InvalidSettings, Settings
from spark_jobs.generating.truth import Truth
from spark_jobs.generating.world import World, make_world
from spark_jobs.generating.writing import Writer

PIECE = 400_000
"""Events that are made at a time: what memory has to hold."""
IN_VAIN = 500
"""One in so many events is of a ping that brings nothing new."""


def generate(
    settings: Settings, directory: Path, progress: Callable[[int], None] = lambda _: None
) -> dict[str, int]:
    """Write traces and truth into the directory, which has none yet; what was written, counted."""
    if directory.exists() and any(directory.iterdir()):
        raise InvalidSettings(f"{directory} is not empty: name a new directory")
    draw = np.random.default_rng(settings.seed)
    world = make_world(settings, draw)
    moving = Moving(settings, world, draw)
    subscribers = [*world.subscribers, "proxy", *(client.name for client in moving.clients)]
    writer = Writer(directory, world, subscribers, settings.start_ns, draw)
    with Truth(directory, world, subscribers) as truth:
        counted = _Generation(settings, world, moving, draw, writer, truth).run(progress)
        summary = {**counted, "files": writer.files, "bytes": writer.bytes}
        truth.finish(settings, moving.clients, summary)
    return summary


class _Generation:
    """One run of the generator."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        moving: Moving,
        draw: np.random.Generator,
        writer: Writer,
        truth: Truth,
    ) -> None:
        self._settings = settings
        self._world = world
        self._moving = moving
        self._draw = draw
        self._writer = writer
        self._truth = truth
        self._crossings = Crossings(settings, world, draw)
        self._end = settings.start_ns + settings.span_ns
        self._steady = together(
            [
                probing.probes(settings, world, draw),
                probing.subscriptions(settings, world, moving, draw),
            ]
        )
        self._farewells = probing.farewells(world, self._end)
        self._vain = settings.events // IN_VAIN
        self._written = 0

    def run(self, progress: Callable[[int], None]) -> dict[str, int]:
        settings = self._settings
        moves = 3 * len(self._moving.clients)
        left = settings.events - len(self._steady) - len(self._farewells) - moves - self._vain
        each = self._crossings.events_per_update()
        if left < 2 * each:
            raise InvalidSettings("too few events for so many domains, topics and hand-offs")
        gap = (settings.span_ns - SECOND) * each / left
        counts = dict.fromkeys(("updates", "crossings", "lost", "duplicated", "late"), 0)
        before = 0
        while left > 0:
            made = self._crossings.next_piece(max(16, int(min(PIECE, 1.02 * left) / each)), gap)
            piece = _at_most(self._moving.follow(made), left, len(self._world.domains))
            if not len(piece.topic):
                break
            until = int(piece.pinged[-1])
            self._moving.account(piece)
            self._truth.add(piece)
            _count(piece, counts, self._world)
            left -= len(piece.rows)
            self._write(piece, before, until)
            progress(self._written)
            before = until
        self._write_rest(before, left)
        progress(self._written)
        return {"events": self._written, **counts, "handoffs": len(self._moving.clients)}

    def _write(self, piece: Piece, after: int, until: int) -> None:
        now = (self._steady.at > after) & (self._steady.at <= until)
        moved, ids = self._moving.moves(after, until)
        self._put(
            [(piece.rows, piece.trace_ids), (self._steady.where(now), _none()), (moved, _raw(ids))]
        )

    def _write_rest(self, after: int, left: int) -> None:
        """What comes after the last update, and pings in vain for what is missing."""
        moved, ids = self._moving.moves(after, 2**62)
        first = self._settings.start_ns + SECOND
        vain = probing.vain_pings(self._vain + left, first, after, self._world, self._draw)
        traces = self._draw.integers(0, 256, (int(vain.update.max()) + 1, 16), dtype=np.uint8)
        rest = self._steady.where(self._steady.at > after)
        ends = replace(self._farewells, at=self._farewells.at + max(0, after - self._end))
        self._put(
            [(vain, traces), (rest, _none()), (ends, _none()), (moved, _raw(ids))]
        )  # fmt: skip

    def _put(self, parts: list[tuple[Rows, NDArray[np.uint8]]]) -> None:
        made, first = [], 0
        for rows, ids in parts:
            update = np.where(rows.update == NONE, NONE, rows.update + first)
            made.append(replace(rows, update=update))
            first += len(ids)
        whole = together(made)
        self._writer.write(whole, np.concatenate([ids for _, ids in parts]))
        self._written += len(whole)


def _at_most(piece: Piece, events: int, domains: int) -> Piece:
    """The piece without the updates, from the last on, that make it larger than that."""
    if len(piece.rows) <= events:
        return piece
    each = np.bincount(piece.rows.update, minlength=len(piece.topic))
    kept = int(np.searchsorted(np.cumsum(each), events, side="right"))
    deliveries = chosen(piece.deliveries, piece.deliveries.update < kept)
    sends = chosen(piece.sends, piece.sends.update < kept)
    # What overtook another may be gone.
    lane = piece.topic[deliveries.update] * domains + deliveries.domain
    late = overtaken(lane, deliveries.delivered, piece.version[deliveries.update])
    sent_late = overtaken(sends.subscriber, sends.sent, piece.version[sends.update])
    return Piece(
        trace_ids=piece.trace_ids[:kept],
        topic=piece.topic[:kept],
        version=piece.version[:kept],
        size=piece.size[:kept],
        pinged=piece.pinged[:kept],
        fetched=piece.fetched[:kept],
        published=piece.published[:kept],
        deliveries=replace(deliveries, late=late),
        sends=replace(sends, late=sent_late),
        rows=piece.rows.where(piece.rows.update < kept),
    )


def _count(piece: Piece, counts: dict[str, int], world: World) -> None:
    found = piece.deliveries
    away = world.home[piece.topic[found.update]] != found.domain
    counts["updates"] += len(piece.topic)
    counts["crossings"] += int(away.sum())
    counts["lost"] += int((found.copies == 0).sum())
    counts["duplicated"] += int((found.copies > 1).sum())
    counts["late"] += int(found.late.sum())


def _none() -> NDArray[np.uint8]:
    return np.zeros((0, 16), dtype=np.uint8)


def _raw(ids: list[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, 16)
