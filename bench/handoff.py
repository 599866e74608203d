"""Clients that move from A to B while messages come: ours, and sessions that mosquitto keeps.

    proactive   two PSPHs as they ship, a fabric between them; the messages enter at hub B. Contexts
                of clients are one hop ahead: B has heard of a client before it comes
    reactive    the same, with `mobility.prepare = false`
    brokers     ours over two mosquittos, bridged, with a proxy at each; they enter at broker B
    mosquitto   the same brokers and a persistent session at A; at B the client begins a new one
    made ahead  the same, and the session at B existed all the time

All clients of a round leave A at once, are away for two seconds and come to B at once, with new
connections; all know the addresses. The clock runs from there: to the first message, whichever it
is; until a client is live, which is MovedIn for ours (it has everything, and B has taken over,
durably) and the answer to its subscription for mosquitto's; and to the first message, "fresh", that
was published after the client came: "live again" in the ratios, the one instant that means the same
for all. Ours have it only after everything that was published meanwhile, in order, as has a session
that was made ahead; a session that is new at B has nothing to catch up with, because it lost it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from bench import mqtt
from bench.handoff_hubs import at_hubs
from bench.handoff_movers import Side, arrive, leave, until
from bench.processes import percentiles
from psirp_sim.runtime import loop

Group = Callable[[AsyncExitStack, Path], Awaitable[dict[str, Side]]]

GAP = 2.0
"""Seconds away."""
BEFORE = 0.5
"""Seconds of messages before the clients go."""
ROUNDS = ((1, 200.0, 3), (10, 50.0, 1), (100, 10.0, 1), (1_000, 0.5, 1))
"""Clients, messages a second, and how often: one process reads what all of them get."""
OURS = ("proactive", "reactive", "brokers")
PARTS = {"proactive": "", "reactive": "_reactive", "brokers": "_brokers"}
"""How ratios are called: without a word more, PSPHs as they ship."""
MOST_COMPARED = 100
"""Of more, what lies between two messages is most of the time until the next one."""


@dataclass
class Measured:
    """Of all rounds of one side with the same number of clients. Milliseconds."""

    first: list[float] = field(default_factory=list)
    live: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    messages: int = 0


def run(rounds: Sequence[tuple[int, float, int]] = ROUNDS, gap: float = GAP) -> dict[str, object]:
    """Clients that move while messages come: how soon they are live again, what is lost."""
    return loop.run(_run(rounds, gap))


async def _run(rounds: Sequence[tuple[int, float, int]], gap: float) -> dict[str, object]:
    found: dict[tuple[str, int], Measured] = {}
    notes = [
        f"messages of 100 bytes; clients are away for {gap:g} s; "
        + ", ".join(f"{clients}: {rate:g} a second" for clients, rate, _ in rounds)
    ]
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        sides: dict[str, Side] = {}
        for number, group in enumerate(_groups(notes)):
            sides |= await group(stack, Path(directory, str(number)))
        await _rounds(sides, rounds, gap, found)
        for side in sides.values():
            notes += await side.remarks()
    return {"ratios": _ratios(found), "figures": _figures(found), "notes": notes}


def _groups(notes: list[str]) -> list[Group]:
    """What is compared, those together that share processes."""
    groups: list[Group] = [
        partial(at_hubs, name="proactive", prepare=True),
        partial(at_hubs, name="reactive", prepare=False),
    ]
    if mqtt.program() is None:
        notes.append(mqtt.MISSING)
        return groups
    try:
        from bench.handoff_brokers import at_brokers
    except ImportError:
        notes.append("paho-mqtt is not installed: brokers are left out")
        return groups
    return [*groups, at_brokers]


async def _rounds(
    sides: dict[str, Side],
    rounds: Sequence[tuple[int, float, int]],
    gap: float,
    found: dict[tuple[str, int], Measured],
) -> None:
    """The sides in turn, so that whatever else the machine has to do slows down all of them."""
    count = 0
    for clients, rate, times in rounds:
        for _ in range(times):
            for name, side in sides.items():
                if clients <= side.most:
                    count += 1
                    measured = found.setdefault((name, clients), Measured())
                    await _round(side, f"{side.topic}{count}", clients, rate, gap, measured)


async def _round(
    side: Side, topic: str, clients: int, rate: float, gap: float, measured: Measured
) -> None:
    here, there = side.places
    async with AsyncExitStack() as stack:
        movers = await side.movers(stack, topic, clients)
        await arrive(movers, here)
        last = 0
        going = True

        async def publish() -> None:
            nonlocal last
            began = asyncio.get_running_loop().time()
            while going:
                await side.publish(topic, last)
                last += 1
                delay = began + last / rate - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, delay))

        flow = asyncio.create_task(publish())
        await asyncio.sleep(BEFORE)
        await until(lambda: all(each.arrivals.numbers for each in movers))
        await leave(movers)
        await asyncio.sleep(gap)
        await arrive(movers, there)
        await until(lambda: all(each.arrivals.caught_up_at for each in movers))
        going = False
        await flow
        await until(lambda: all(last - 1 in each.arrivals.numbers[-1:] for each in movers))
        for each in movers:
            came = each.arrivals
            measured.first.append(1e3 * (came.first_at - came.moved_at))
            measured.live.append(1e3 * (came.live_at - came.moved_at))
            measured.fresh.append(1e3 * (came.caught_up_at - came.moved_at))
            measured.lost += came.lost(last - 1)
            measured.doubled += came.doubled
            measured.messages += last - min(came.numbers)
        await leave(movers)


# What is said


def _ratios(found: dict[tuple[str, int], Measured]) -> dict[str, float]:
    """To the first message that was published after the client came; medians."""
    ratios = {}
    for (name, clients), measured in found.items():
        for reference, suffix in (("mosquitto", ""), ("made_ahead", "_made_ahead")):
            theirs = found.get((reference, clients))
            if theirs is not None and clients <= MOST_COMPARED and name in OURS:
                part = PARTS[name]
                part += "" if clients == 1 else f"_{clients}"
                ratio = median(theirs.fresh) / median(measured.fresh)
                ratios[f"live_again{part}_vs_mosquitto{suffix}"] = round(ratio, 3)
    return ratios


def _figures(found: dict[tuple[str, int], Measured]) -> dict[str, object]:
    ours = [each for (name, _), each in found.items() if name in OURS]
    figures: dict[str, object] = {
        "lost": sum(each.lost for each in ours),
        "duplicated": sum(each.doubled for each in ours),
        "messages": sum(each.messages for each in ours),
    }
    for (name, clients), each in found.items():
        for what, values in (("first", each.first), ("live", each.live), ("fresh", each.fresh)):
            p50, p99 = percentiles(_two(values))
            figures[f"{name}_{clients}_{what}_ms_p50"] = round(p50, 1)
            figures[f"{name}_{clients}_{what}_ms_p99"] = round(p99, 1)
        if name not in OURS:
            figures[f"{name}_{clients}_lost"] = each.lost
            figures[f"{name}_{clients}_duplicated"] = each.doubled
            figures[f"{name}_{clients}_messages"] = each.messages
    return figures


def _two(values: Sequence[float]) -> Sequence[float]:
    """A percentile needs two."""
    return values if len(values) > 1 else [*values, *values]
