"""What `--power-safe` costs: publications that a hub acknowledges, on the disk or not.

    usual   `psph hub` as it ships: an update is with the operating system when it is acknowledged
    safe    the same with `--power-safe`: it is on the disk

They take turns in rounds: one publisher that waits for each answer, and many at once, whose
updates share the syncs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median

import aiohttp

from bench.hub_processes import HubProcess, start_hub
from demo.ports import HOST
from psirp_sim.runtime import loop

AT_ONCE = 64


def run(alone: int = 100, together: int = 1_000, rounds: int = 5) -> dict[str, object]:
    """Publications a second and until they are acknowledged."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psph-bench-")))
        hubs = {
            "usual": start_hub(stack, directory / "usual"),
            "safe": start_hub(stack, directory / "safe", "--power-safe"),
        }
        waited: dict[str, list[float]] = {name: [] for name in hubs}
        took: dict[str, list[float]] = {name: [] for name in hubs}
        for number in range(rounds + 1):
            for name, hub in hubs.items():
                latencies = loop.run(_publish(hub, alone, 1))
                began = time.monotonic()
                loop.run(_publish(hub, together, AT_ONCE))
                if number:  # the first is for connections and programs to become warm
                    took[name].append(time.monotonic() - began)
                    waited[name].append(median(latencies))
    return {
        "ratios": {
            "answer_vs_usual": _ratio(waited),
            "throughput_vs_usual": _ratio(took),
        },
        "figures": {
            **{f"{name}_answer_ms_p50": round(median(waited[name]) * 1e3, 2) for name in hubs},
            **{f"{name}_acknowledged_per_s": round(together / median(took[name])) for name in hubs},
        },
        "notes": [
            f"median of {rounds} rounds: {alone} publications of 300 bytes one after the other, "
            f"then {together} from {AT_ONCE} publishers at once",
            f"the databases were in {tempfile.gettempdir()}: set TMPDIR to measure another disk",
        ],
    }


def _ratio(seconds: dict[str, list[float]]) -> float:
    pairs = zip(seconds["usual"], seconds["safe"], strict=True)
    return round(median(usual / safe for usual, safe in pairs), 3)


async def _publish(hub: HubProcess, count: int, at_once: int) -> list[float]:
    """The seconds until each publication was acknowledged."""
    numbers = iter(range(count))
    latencies: list[float] = []

    async def some(client: aiohttp.ClientSession, topic: str) -> None:
        for _ in numbers:
            began = time.monotonic()
            query = {"topic": topic}
            async with client.post(f"{hub.url}/publish", params=query, data=b"x" * 300) as answer:
                if answer.status != 201:
                    raise RuntimeError(f"the hub answered {answer.status}: {await answer.text()}")
            latencies.append(time.monotonic() - began)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for each in range(at_once):
            # Each from an address of its own: the hub limits how much one client may ask.
            address = f"127.0.3.{each + 1}" if sys.platform == "linux" else HOST
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(local_addr=(address, 0)),
                headers={"Authorization": f"Bearer {hub.token()}", "Content-Type": "text/plain"},
            )
            client = await stack.enter_async_context(session)
            group.create_task(some(client, f"http://example.com/{each}"))
    return latencies
