"""Two mosquittos, bridged, with a mobility proxy at each: all of them processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path

from bench.handoff_brokers import BrokerRoamer
from bench.mqtt_bridge import Brokers
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.linkless import LinklessNode
from psph.mobility.mqtt import SETTINGS
from tests.ports import free_ports

PATIENCE = 60
SOON = replace(SETTINGS, retry_first=300 * MILLISECOND, retry_most=600 * MILLISECOND)


def in_a_loop(test):
    """Run a coroutine as a test."""

    @wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


async def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what() if callable(what) else what}"
        await asyncio.sleep(0.01)


class World:
    """`async with World(tmp_path) as world:`"""

    def __init__(self, directory, *entrance, topics=("#",)):
        self.brokers = Brokers(directory, free_ports(2), durable=True, topics=topics)
        self.places = self.brokers.places
        self._directory = directory
        self._entrance = [word for topic in entrance for word in ("--entrance", topic)]
        self._proxies = {}

    async def __aenter__(self):
        async with AsyncExitStack() as stack:  # left at once if something does not come up
            stack.callback(self.brokers.stop)
            for name in "AB":
                self.brokers.start(name)
            stack.callback(lambda: [self.kill_proxy(name) for name in list(self._proxies)])
            for name in "AB":
                self.start_proxy(name)
            for name in "AB":
                await self.proxy_ready(name)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *about):
        await self._stack.__aexit__(*about)

    def start_proxy(self, name):
        data = self._directory / f"proxy-{name}"
        program = Path(sys.executable).with_name("psph")
        command = [program, "mqtt-proxy", self.places[name]]
        self._proxies[name] = subprocess.Popen(
            [*command, "--data", str(data), *self._entrance], stdout=subprocess.PIPE, text=True
        )

    async def proxy_ready(self, name):
        line = await asyncio.to_thread(self._proxies[name].stdout.readline)
        assert line == f"ready {self.places[name]}\n"

    def kill_proxy(self, name):
        process = self._proxies.pop(name)
        process.kill()
        process.wait()
        process.stdout.close()

    async def roamer(self, name, settings=SETTINGS):
        """A client with a disk of its own."""
        node = LinklessNode(name, storage=self._directory / name)
        await self._stack.enter_async_context(node)
        roamer = BrokerRoamer(node, name.encode().ljust(32, b"."), settings)
        node.run(lambda env: roamer.client)
        return roamer

    async def arrive(self, roamer, name):
        roamer.move_in(self.places[name])
        await until(lambda: roamer.live, lambda: f"{roamer.client.stage} at {name}")

    async def leave(self, roamer):
        roamer.client.move_out()
        await until(lambda: roamer.gone, "moving out")


async def publishing(roamer, numbers, every=0.005):
    """In the background, one after the other."""
    for number in numbers:
        roamer.publish(number)
        await asyncio.sleep(every)


async def exactly(arrivals, numbers):
    """These have come, each once and in order, and nothing else was said."""
    expected = list(numbers)
    await until(
        lambda: arrivals.numbers[-1:] == expected[-1:],
        lambda: f"{len(arrivals.numbers)} of {len(expected)}, {arrivals.other}",
    )
    missing = sorted(set(expected) - set(arrivals.numbers))
    assert not missing, f"missing: {missing}, told: {arrivals.other}"
    twice = sorted({each for each in arrivals.numbers if arrivals.numbers.count(each) > 1})
    assert not twice, f"twice: {twice}"
    assert arrivals.numbers == expected
    assert arrivals.other == []
