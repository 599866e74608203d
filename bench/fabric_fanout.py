"""One publisher, a hundred subscribers: deliveries a second, beside mosquitto.

Three processes: the publisher, the forwarding node or mosquitto, and all subscribers. Each
subscriber is a node of the fabric with a socket of its own, or an MQTT client with an id and a
socket of its own; one event loop watches them all, in the same process for both systems.

The publisher sends as fast as the system takes it: the fabric's by what its listeners report,
mosquitto's until TCP takes no more (mosquitto queues without limit, so that nothing is lost).
Every subscriber checks every number. The systems take turns in rounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from statistics import median

from bench import mqtt
from bench.processes import (
    NUMBER,
    Host,
    Process,
    Tally,
    build,
    last_of,
    median_ratio,
    serve,
)
from psirp_sim.runtime import loop

PAYLOAD = 100
"""Bytes of a message."""
AHEAD = 512
ITEM = "fanout"
OURS, REFERENCE = "ours", "mosquitto"


def run(rounds: int = 5, messages: int = 800, subscribers: int = 100) -> dict[str, object]:
    """Deliveries a second from one publisher to a hundred subscribers."""
    listeners = [f"s{number}" for number in range(subscribers)]
    with ExitStack() as stack:
        port = stack.enter_context(mqtt.broker())
        pub, node, sub = (Process(stack, __name__, name) for name in ("pub", "f", "sub"))
        places = {"f": node, "p": pub} | dict.fromkeys(listeners, sub)
        build(places, [(name, "f") for name in places if name != "f"], server="f")
        pub.ask("offer", ["p", ITEM, False])
        sub.ask("subscribe", [listeners, ITEM, False])
        pub.ask("followed", ["p", ITEM, subscribers])
        systems = [OURS]
        if port is not None:
            sub.ask("mqtt", [port, subscribers])
            pub.ask("mqtt", port)
            systems.append(REFERENCE)
        rates: dict[str, list[float]] = {name: [] for name in systems}
        cpu: dict[str, list[float]] = {name: [] for name in ("pub", "f", "sub")}
        for _ in range(rounds):
            for system in systems:
                before = [each.ask("status")["cpu"] for each in (pub, node, sub)]
                sub.ask("expect", [system, messages])
                begun = pub.ask("send", [system, messages])
                took = sub.ask("complete", system) - begun
                rates[system].append(messages * subscribers / took * 1e9)
                after = [each.ask("status")["cpu"] for each in (pub, node, sub)]
                if system == OURS:
                    for name, one, two in zip(cpu, before, after, strict=True):
                        cpu[name].append((two - one) / messages * 1e6)
        counts = {system: sub.ask("counts", system) for system in systems}
        status = [each.ask("status") for each in (pub, node, sub)]
    if any(set(found) != {rounds * messages} for found in counts.values()):
        raise RuntimeError(f"{rounds * messages} were sent to each, and came: {counts}")
    if any(each["core_errors"] for each in status):
        raise RuntimeError("exceptions left cores")
    figures: dict[str, object] = {
        f"{system}_deliveries_per_s": round(median(found)) for system, found in rates.items()
    }
    figures |= {
        "subscribers": subscribers,
        "publisher_cpu_us_per_message": round(median(cpu["pub"]), 1),
        "node_cpu_us_per_message": round(median(cpu["f"]), 1),
        "subscriber_cpu_us_per_delivery": round(median(cpu["sub"]) / subscribers, 1),
        "link_driver": "/".join(sorted({d for each in status for d in each["drivers"]})),
        "deliveries_verified": sum(sum(found) for found in counts.values()),
    }
    ratios = {}
    if port is not None:
        ratios["deliveries_vs_mosquitto"] = median_ratio(rates[OURS], rates[REFERENCE])
    return {
        "ratios": ratios,
        "figures": figures,
        "notes": [
            f"messages of {PAYLOAD} bytes, unsigned, through one forwarding node; every subscriber "
            "has a socket and an id of its own and checks every number",
            "mosquitto: QoS 0, set_tcp_nodelay, queues without limit, raw clients on one event "
            "loop, in the same processes",
            "..._cpu_us_...: ours",
            f"medians of {rounds} rounds of {messages} messages, the systems in turn",
            *([] if port is not None else [mqtt.MISSING]),
        ],
    }


class Publisher(Host):
    """Sends to whichever system it is told."""

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self._sent = {OURS: 0, REFERENCE: 0}
        self._mqtt: mqtt.Client | None = None

    async def connect(self, port: int) -> None:
        self._mqtt = mqtt.Client(port, "publisher", lambda payload: None)
        await self._mqtt.connect()

    def _messages(self, system: str, number: int) -> Iterator[bytes]:
        filling = bytes(PAYLOAD - NUMBER)
        for _ in range(number):
            yield self._sent[system].to_bytes(NUMBER) + filling
            self._sent[system] += 1

    async def send(self, about: tuple[str, int]) -> int:
        """As fast as it goes; when that began."""
        system, number = about
        begun = time.monotonic_ns()
        messages = self._messages(system, number)
        if system == OURS:
            await self.feed("p", ITEM, messages, AHEAD)
        else:
            assert self._mqtt is not None
            topic = mqtt.topic_of(ITEM)
            for message in messages:
                await self._mqtt.publish(topic, message)
        return begun


class Subscribers(Host):
    """Take what comes from either system."""

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self._clients: list[mqtt.Client] = []
        self._reference: list[Tally] = []

    def _of(self, system: str) -> list[Tally]:
        return self._reference if system == REFERENCE else list(self.tallies.values())

    async def connect(self, about: tuple[int, int]) -> None:
        port, number = about
        for each in range(number):
            tally = Tally()
            client = mqtt.Client(port, f"subscriber-{each}", tally.take)
            await client.connect()
            await client.subscribe(ITEM)
            self._clients.append(client)
            self._reference.append(tally)

    async def expect(self, about: tuple[str, int]) -> None:
        system, more = about
        for tally in self._of(system):
            tally.expect(more)

    async def complete(self, system: str) -> int:
        return await last_of(self._of(system))

    async def counts(self, system: str) -> list[int]:
        return [tally.count for tally in self._of(system)]


async def _main(name: str) -> None:
    async with AsyncExitStack() as stack:
        if name == "pub":
            publisher = Publisher(stack)
            await serve(publisher.answers() | {"mqtt": publisher.connect, "send": publisher.send})
        elif name == "sub":
            subscribers = Subscribers(stack)
            await serve(
                subscribers.answers()
                | {
                    "mqtt": subscribers.connect,
                    "expect": subscribers.expect,
                    "complete": subscribers.complete,
                    "counts": subscribers.counts,
                }
            )
        else:
            await serve(Host(stack).answers())


if __name__ == "__main__":
    loop.run(_main(*sys.argv[1:]))
