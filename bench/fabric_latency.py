"""From publish() to the listener's call, one at a time, beside mosquitto; what signatures cost.

Every part is a process: the publisher, the subscriber, and between them one forwarding node, three
in a row, or mosquitto. Publisher and subscriber are the same two processes for all of them, with
an event loop that watches one socket for each. A message carries the time it was sent at, by the
clock that all processes of the machine share.

    p - f1 - s1             one node
    p - f1 - f2 - f3 - s3   three

Rounds of the contenders take turns, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from statistics import median

from bench import mqtt
from bench.processes import (
    NUMBER,
    ZONE_KEY,
    ZONE_KEYS,
    Host,
    Process,
    Tally,
    build,
    ids_of,
    median_ratio,
    percentiles,
    serve,
)
from psirp_sim.ed25519 import verified
from psirp_sim.runtime import loop

PAYLOAD = 100
"""Bytes of a message."""
EVERY = 0.002
"""Seconds between two messages whose latency is measured."""
SILENCE = 0.6
"""Seconds before a message that comes after nothing."""
WARM_UP = 50
"""Messages at the beginning of a round that do not count: see SILENCE for the first."""
AHEAD = 512
LISTENERS = {"one": "s1", "three": "s3", "unsigned": "s1", "signed": "s1"}
"""Who listens to which item."""
REFERENCE = "mosquitto"


def run(rounds: int = 12, messages: int = 400, flood: int = 4_000) -> dict[str, object]:
    """Latency of small publications over one node and three, and the cost of signatures."""
    with ExitStack() as stack:
        port = stack.enter_context(mqtt.broker())
        names = ("pub", "f1", "f2", "f3", "sub")
        processes = {name: Process(stack, __name__, name) for name in names}
        pub, sub = processes["pub"], processes["sub"]
        places = {"p": pub, "s1": sub, "s3": sub} | {n: processes[n] for n in ("f1", "f2", "f3")}
        links = [("p", "f1"), ("s1", "f1"), ("f1", "f2"), ("f2", "f3"), ("f3", "s3")]
        build(places, links, server="f1")
        for item, listener in LISTENERS.items():
            pub.ask("offer", ["p", item, item == "signed"])
            sub.ask("subscribe", [[listener], item, item == "signed"])
            pub.ask("followed", ["p", item, 1])
        contenders = ["one", "three"]
        if port is not None:
            sub.ask("mqtt", port)
            pub.ask("mqtt", port)
            contenders.append(REFERENCE)
        p50: dict[str, list[float]] = {name: [] for name in contenders}
        p99: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name in contenders:
                sub.ask("expect", [name, messages + WARM_UP, True])
                pub.ask("ping", [name, messages + WARM_UP, EVERY])
                found = sub.ask("latencies", name)[WARM_UP:]
                middle, high = percentiles(found)
                p50[name].append(middle)
                p99[name].append(high)
        lone: dict[str, list[float]] = {}
        for name in contenders:
            sub.ask("expect", [name, rounds, True])
            pub.ask("ping", [name, rounds, SILENCE])
            lone[name] = sub.ask("latencies", name)
        floods = ["unsigned", "signed", *([] if port is None else [REFERENCE])]
        rates: dict[str, list[float]] = {name: [] for name in floods}
        for _ in range(max(1, rounds // 4)):
            for name in floods:
                sub.ask("expect", [name, flood, False])
                begun = pub.ask("flood", [name, flood])
                rates[name].append(flood / (sub.ask("complete", name) - begun) * 1e9)
        sign, verify = pub.ask("signatures", max(200, flood // 4))
        status = {name: process.ask("status") for name, process in processes.items()}
    errors = {name: each["core_errors"] for name, each in status.items() if each["core_errors"]}
    if errors:
        raise RuntimeError(f"exceptions left cores: {errors}")
    ratios = {}
    if port is not None:
        ratios = {
            "p50_vs_mosquitto": median_ratio(p50[REFERENCE], p50["one"]),
            "p99_vs_mosquitto": median_ratio(p99[REFERENCE], p99["one"]),
        }
    figures: dict[str, object] = {}
    for name, label in (("one", "one_node"), ("three", "three_nodes"), (REFERENCE, REFERENCE)):
        if name in contenders:
            figures[f"{label}_p50_us"] = round(median(p50[name]), 1)
            figures[f"{label}_p99_us"] = round(median(p99[name]), 1)
            figures[f"{label}_after_silence_us"] = round(median(lone[name]), 1)
    for name in floods:
        figures[f"{name}_messages_per_s"] = round(median(rates[name]))
    figures |= {
        "signed_vs_unsigned_rate": median_ratio(rates["signed"], rates["unsigned"]),
        "sign_us": round(sign, 1),
        "verify_us": round(verify, 1),
        "link_driver": "/".join(sorted({d for s in status.values() for d in s["drivers"]})),
        "messages_verified": rounds * (messages + WARM_UP + 1) * len(contenders)
        + max(1, rounds // 4) * flood * len(floods),
    }
    return {
        "ratios": ratios,
        "figures": figures,
        "notes": [
            f"messages of {PAYLOAD} bytes, one every {EVERY * 1e3:.0f} ms, unsigned, from before "
            "publish() until the subscriber has it; ratios for one forwarding node",
            "mosquitto with set_tcp_nodelay, QoS 0, between raw clients in the same two processes",
            f"after_silence: a message {SILENCE} s after the one before; median",
            "..._messages_per_s: 1 -> 1 over one node as fast as it goes; every number checked",
            f"medians of {rounds} rounds of {messages} messages, contenders in turn",
            *([] if port is not None else [mqtt.MISSING]),
        ],
    }


class Publisher(Host):
    """Sends to whichever system it is told."""

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self._numbers: dict[str, Iterator[int]] = {}
        self._mqtt: mqtt.Client | None = None

    async def connect(self, port: int) -> None:
        self._mqtt = mqtt.Client(port, "publisher", lambda payload: None)
        await self._mqtt.connect()

    def _messages(self, name: str, number: int) -> Iterator[bytes]:
        numbers = self._numbers.setdefault(name, count())
        filling = bytes(PAYLOAD - 2 * NUMBER)
        for _ in range(number):
            yield next(numbers).to_bytes(NUMBER) + time.monotonic_ns().to_bytes(NUMBER) + filling

    async def ping(self, about: tuple[str, int, float]) -> None:
        """One message at a time, and a pause before each."""
        name, number, pause = about
        topic = mqtt.topic_of(name)
        for _ in range(number):
            await asyncio.sleep(pause)
            message = next(self._messages(name, 1))
            if name == REFERENCE:
                assert self._mqtt is not None
                await self._mqtt.publish(topic, message)
            else:
                self.cores["p"].client.publish(*ids_of(name), message)

    async def flood(self, about: tuple[str, int]) -> int:
        """As fast as it goes; when that began."""
        name, number = about
        begun = time.monotonic_ns()
        messages = self._messages(name, number)
        if name == REFERENCE:
            assert self._mqtt is not None
            topic = mqtt.topic_of(name)
            for message in messages:
                await self._mqtt.publish(topic, message)
        else:
            await self.feed("p", name, messages, AHEAD)
        return begun

    async def signatures(self, number: int) -> tuple[float, float]:
        """Microseconds to sign what is signed of a publication, and to verify it."""
        texts = [each.to_bytes(160) for each in range(number)]
        begun = time.perf_counter()
        signatures = [ZONE_KEY.sign(text) for text in texts]
        signed = time.perf_counter()
        good = [
            verified(ZONE_KEYS[0], signature, text)
            for signature, text in zip(signatures, texts, strict=True)
        ]
        done = time.perf_counter()
        assert all(good)
        return (signed - begun) / number * 1e6, (done - signed) / number * 1e6


class Subscriber(Host):
    """Takes what comes from either system."""

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self._mqtt: mqtt.Client | None = None

    async def connect(self, port: int) -> None:
        self._mqtt = mqtt.Client(port, "subscriber", self._tally_of(REFERENCE).take)
        await self._mqtt.connect()
        await self._mqtt.subscribe(REFERENCE)

    def _tally_of(self, name: str) -> Tally:
        return self.tally(LISTENERS.get(name, ""), name)

    async def expect(self, about: tuple[str, int, bool]) -> None:
        name, more, timed = about
        tally = self._tally_of(name)
        tally.latencies = [] if timed else None
        tally.expect(more)

    async def complete(self, name: str) -> int:
        return await self._tally_of(name).all()

    async def latencies(self, name: str) -> list[float]:
        """In microseconds."""
        tally = self._tally_of(name)
        await tally.all()
        return [each / 1e3 for each in tally.latencies or ()]


async def _main(name: str) -> None:
    async with AsyncExitStack() as stack:
        if name == "pub":
            publisher = Publisher(stack)
            await serve(
                publisher.answers()
                | {
                    "mqtt": publisher.connect,
                    "ping": publisher.ping,
                    "flood": publisher.flood,
                    "signatures": publisher.signatures,
                }
            )
        elif name == "sub":
            subscriber = Subscriber(stack)
            await serve(
                subscriber.answers()
                | {
                    "mqtt": subscriber.connect,
                    "expect": subscriber.expect,
                    "complete": subscriber.complete,
                    "latencies": subscriber.latencies,
                }
            )
        else:
            await serve(Host(stack).answers())


if __name__ == "__main__":
    loop.run(_main(*sys.argv[1:]))
