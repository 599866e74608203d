"""From a ping at hub B to the POST at a callback of hub A, beside the bare HTTP exchanges in it.

Two domains as in `examples/two-domains/`, every part a process that runs `psph serve` with its
defaults: a name server, a fabric of three nodes, a PSPH for each domain. One at a time and in turn:

    crossing   a site of domain B pings hub B, which fetches the feed (Atom, 1.6 kB); the fabric
               carries it, signed; hub A posts it to a callback
    one_hub    the same without a fabric: the callback has subscribed at hub B
    plain      a bare aiohttp process is posted to, fetches the same feed and posts it to the same
               callback: the HTTP exchanges of a crossing, and nothing else
    direct     the site sends hub B the content itself, which is no feed, instead of a ping
    two_posts  the bare process is sent that, and posts it to the same callback

The added part is what `crossing` takes longer than `plain`, and `direct` than `two_posts`. Stages
are from the traces. Then many versions are sent to hub B as direct content, as fast as they are
taken, until hub A has posted all; the bare process passes on the same beside it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlencode

import aiohttp

from bench.crossing_relay import start_relay
from bench.crossing_site import Site
from bench.crossing_stages import Crossed, stages
from bench.crossing_world import B, World, start_world
from bench.hub_processes import atom
from bench.processes import percentiles
from psirp_sim.runtime import loop

PAUSE = 0.01
"""Seconds before each measurement: what the one before has left to do is done."""
PER_TOPIC = 16
"""Pings of one topic: a hub takes twenty at once and two a second."""
SENDERS = 8
"""Who send content at the same time, each for a topic of its own."""
AHEAD = 64
"""Versions of a topic that a sender is ahead of what arrived."""
LONGEST = 45.0
"""Seconds of measurements one at a time: where they take long there are fewer, a hundred at least.
"""
FEWEST = 100
PATIENCE = 60.0
"""Seconds after which something is not waited for any more."""
CONTENDERS = {"crossing": "crossing", "one_hub": "one_hub", "plain": "crossing",
              "direct": "direct", "two_posts": "direct"}  # fmt: skip
"""And the kind of topic that each is about."""


def run(crossings: int = 320, versions: int = 800) -> dict[str, object]:
    """From a ping in one domain to the POST in another, and what the fabric adds."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psph-bench-")))
        world = start_world(stack, directory / "world")
        bench = Bench(world, start_relay(stack))
        loop.run(bench.run(crossings, versions))
        for proxy in (world.a, world.b):
            proxy.stop()
        traces = [proxy.hub.data / "traces" for proxy in (world.a, world.b)]
        return bench.result(stages(bench.took["crossing"], traces))


class Bench:
    """What is measured, in the event loop."""

    def __init__(self, world: World, relay: str) -> None:
        self._world = world
        self._relay = relay
        self._token = world.b.hub.token()
        self._numbers = count(1)
        self.took: dict[str, list[Crossed]] = {name: [] for name in CONTENDERS}
        self._rates: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._versions = 0

    async def run(self, crossings: int, versions: int) -> None:
        topics = {"crossing": -(-crossings // PER_TOPIC), "direct": SENDERS}
        topics["one_hub"] = topics["crossing"]
        warm_up = max(topics.values())
        async with AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(aiohttp.ClientSession())
            self._site = await stack.enter_async_context(Site(B, f"{self._world.b.url}/hub"))
            await self._subscribe(topics)
            end = time.monotonic() + LONGEST
            for number in range(-warm_up, crossings):
                if number >= FEWEST and time.monotonic() > end:
                    break
                for name, kind in CONTENDERS.items():
                    await asyncio.sleep(PAUSE)
                    crossed = await self._cross(name, f"{kind}/{number % topics[kind]}")
                    if number >= 0:  # before, connections are made
                        self.took[name].append(crossed)
            self._versions = versions // SENDERS
            for name in ("direct", "two_posts"):
                self._rates[name] = await self._flood(name)

    async def _subscribe(self, topics: dict[str, int]) -> None:
        confirmed = {self._world.a: 0, self._world.b: 0}
        for kind, number in topics.items():
            hub = self._world.b if kind == "one_hub" else self._world.a
            confirmed[hub] += number
            for name in (f"{kind}/{each}" for each in range(number)):
                if kind != "direct":
                    self._site.put(name, atom(next(self._numbers)))
                form = {
                    "hub.mode": "subscribe",
                    "hub.topic": self._site.topic(name),
                    "hub.callback": self._site.callback(name),
                }
                async with self._session.post(f"{hub.url}/hub", data=form) as answer:
                    if answer.status != 202:
                        raise RuntimeError(f"the hub of {hub.zone} answered {answer.status}")
        for hub, number in confirmed.items():
            await asyncio.to_thread(hub.hub.wait_for, "verifications_confirmed", number)

    # One at a time

    async def _cross(self, name: str, topic: str) -> Crossed:
        body = atom(next(self._numbers))
        if CONTENDERS[name] == "direct":
            body = _content(f"lone {next(self._numbers)}")
        else:
            self._site.put(topic, body)
        arrival = self._site.expect(body)
        begun = time.monotonic_ns()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._send(name, topic, body)
                arrived, position = await arrival
        except TimeoutError:
            raise RuntimeError(f"{name}: nothing came of {topic} in {PATIENCE:.0f} s") from None
        return Crossed(begun, (arrived - begun) / 1e6, (self._site.topic(topic), position))

    async def _send(self, name: str, topic: str, body: bytes) -> None:
        form = {"hub.mode": "publish", "hub.url": self._site.topic(topic)}
        to = {"to": self._site.callback(topic)}
        kind = {"Content-Type": "text/plain"}
        token = {"Authorization": f"Bearer {self._token}"}
        hub = self._world.b.url
        match name:
            case "plain":
                query = urlencode(to | {"fetch": self._site.local(topic)})
                request = self._session.post(f"{self._relay}?{query}")
            case "two_posts":
                url = f"{self._relay}?{urlencode(to)}"
                request = self._session.post(url, data=body, headers=kind)
            case "direct":
                url = f"{hub}/publish?{urlencode({'topic': self._site.topic(topic)})}"
                request = self._session.post(url, data=body, headers=kind | token)
            case _:
                request = self._session.post(f"{hub}/hub", data=form)
        async with request as answer:
            if answer.status not in (201, 204):
                raise RuntimeError(f"{name} was answered {answer.status}: {await answer.text()}")

    # As fast as it goes

    async def _flood(self, name: str) -> float:
        """Deliveries a second; every version has to come once, in order, with its content."""
        proxies = (self._world.a, self._world.b)
        before = {proxy: proxy.hub.cpu() for proxy in proxies}
        channels = [f"direct/{each}" for each in range(SENDERS)]
        begun = time.monotonic_ns()
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for channel in channels:
                    group.create_task(self._send_all(name, channel))
        except TimeoutError:
            came = [len(self._site.received[channel]) for channel in channels]
            trouble = f"{name}: of {self._versions} versions {came} have come to each callback"
            raise RuntimeError(f"{trouble} after {PATIENCE:.0f} s") from None
        took = max(self._site.last(channel) for channel in channels) - begun
        if name == "direct":
            for proxy in proxies:
                spent = proxy.hub.cpu() - before[proxy]
                self._cpu[proxy.zone] = spent / (SENDERS * self._versions) * 1e6
        for channel in channels:
            found = self._site.received.pop(channel)
            sent = [_content(f"{name} {channel} {each}") for each in range(self._versions)]
            if found != sent:
                raise RuntimeError(f"{name}: {len(found)} versions came, or others than were sent")
        return SENDERS * self._versions / took * 1e9

    async def _send_all(self, name: str, channel: str) -> None:
        for number in range(self._versions):
            await self._site.count(channel, number - AHEAD)
            await self._send(name, channel, _content(f"{name} {channel} {number}"))
        await self._site.count(channel, self._versions)

    # The result

    def result(self, staged: dict[str, float]) -> dict[str, object]:
        """As `psph bench` wants it."""
        at: dict[str, dict[str, float]] = {"p10": {}, "p50": {}, "p99": {}}
        for name, measured in self.took.items():
            times = [each.took for each in measured]
            at["p10"][name] = quantiles(times, n=10, method="inclusive")[0]
            at["p50"][name], at["p99"][name] = percentiles(times)
        figures: dict[str, object] = {}
        for label, more, less in (
            ("added", "crossing", "plain"),
            ("added_direct", "direct", "two_posts"),
            ("added_to_one_hub", "crossing", "one_hub"),
        ):
            figures |= {f"{label}_{p}_ms": round(at[p][more] - at[p][less], 3) for p in at}
        for name in CONTENDERS:
            figures |= {f"{name}_{p}_ms": round(at[p][name], 3) for p in ("p50", "p99")}
        figures |= {f"stage_{name}_p50_ms": round(each, 3) for name, each in staged.items()}
        figures |= {
            "crossings_per_second": round(self._rates["direct"]),
            "two_posts_per_second": round(self._rates["two_posts"]),
            "cpu_us_per_crossing_at_a": round(self._cpu[self._world.a.zone]),
            "cpu_us_per_crossing_at_b": round(self._cpu[self._world.b.zone]),
            "crossings_verified": 2 * len(self.took["crossing"]) + SENDERS * self._versions,
        }
        return {
            "ratios": {
                "p50_vs_plain": round(at["p50"]["plain"] / at["p50"]["crossing"], 3),
                "p99_vs_plain": round(at["p99"]["plain"] / at["p99"]["crossing"], 3),
                "p50_vs_one_hub": round(at["p50"]["one_hub"] / at["p50"]["crossing"], 3),
                "p50_direct_vs_two_posts": round(at["p50"]["two_posts"] / at["p50"]["direct"], 3),
                "rate_vs_two_posts": round(self._rates["direct"] / self._rates["two_posts"], 3),
            },
            "figures": figures,
            "notes": [
                f"{len(self.took['crossing'])} updates of each kind, 1.6 kB, one at a time and in "
                "turn; from before the ping, or the content, is sent until the callback has the "
                "body; p10 is there for machines that do other work",
                "added: a percentile of the crossings less that of a bare aiohttp process that is "
                "posted to, fetches the same feed and posts it to the same callback; "
                "added_direct: of content that is sent, less that of the bare process passing it "
                "on; added_to_one_hub: less that of one hub that does all of it in one domain",
                "stages: medians from the traces, each since the one before; the first since "
                "before the ping was sent, the last until the callback has answered",
                f"crossings_per_second: {SENDERS} senders of direct content, {self._versions} "
                "versions each, until all were posted; every content checked, once and in order",
            ],
        }


def _content(text: str) -> bytes:
    return f"{text} ".encode().ljust(1_600, b"x")
