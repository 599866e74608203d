"""Deliveries a second of one update to 1,000 callbacks, beside a bare client and Flask-WebSub.

The contenders deliver the same signed Atom feed of 1.6 kB to the same callbacks at the same sink:

    ours    `psph hub` as it ships: pinged, it fetches the topic, records the update and what it
            owes in SQLite on disk, and delivers
    bare    an aiohttp client that does nothing but these POSTs, with headers made beforehand
    flask   Flask-WebSub's own tasks, its SQLite storage, and in place of Celery two processes
            that are handed the tasks directly: no broker, which favours it

They take turns in rounds. A round's time is from the ping, or the start, to the last delivery in
the sink's log, in which every callback must then be found exactly once.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

import aiohttp

from bench.hub_processes import PATIENCE, HubProcess, Sink, atom, start_hub, start_sink
from psirp_sim.runtime import loop
from push_hub.signatures import signature

AT_ONCE = 64
"""Requests of the bare client under way together: what the hub allows itself for one host."""


def run(callbacks: int = 1_000, rounds: int = 7) -> dict[str, object]:
    """Deliveries a second of one update to 1,000 callbacks, signed."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psph-bench-")))
        sink = start_sink(stack, directory / "sink")
        contenders: dict[str, Callable[[int], float]] = {}
        hub = start_hub(stack, directory / "hub")
        contenders["ours"] = _ours(stack, hub, sink, callbacks)
        contenders["bare"] = _bare(stack, sink, callbacks)
        if importlib.util.find_spec("flask_websub") is not None:
            contenders["flask"] = _flask(stack, directory, sink, callbacks)
        took: dict[str, list[float]] = {name: [] for name in contenders}
        cpu = 0.0
        for number in range(rounds + 1):
            for name, deliver in contenders.items():
                seen = len(sink.deliveries())
                before = hub.cpu()
                began = deliver(number)
                sink.wait_for(seen + callbacks)
                found = sink.deliveries(seen)
                _check(name, found, sink, callbacks)
                if number == 0:
                    continue  # connections are made, programs become warm
                took[name].append(max(at for at, _ in found) - began)
                if name == "ours":
                    cpu += hub.cpu() - before
        hub.wait_for("deliveries_delivered", callbacks * (rounds + 1))

    def ratio(other: str) -> float:
        pairs = zip(took[other], took["ours"], strict=True)
        return round(median(theirs / ours for theirs, ours in pairs), 3)

    rates = {name: round(callbacks / median(each)) for name, each in took.items()}
    notes = [
        f"one update of a signed Atom feed of 1.6 kB to {callbacks} callbacks, median of {rounds} "
        f"rounds; the sink was {sink.kind} and every delivery was found in its log exactly once",
        "ours: from the ping to the last delivery: fetching, feed parsing, recording and queueing "
        "on disk included; bare: from the first POST to the last",
        f"bare: an aiohttp client on the same event loop, {AT_ONCE} requests at once",
    ]
    ratios = {"vs_bare_client": ratio("bare")}
    if "flask" in took:
        ratios["vs_flask_websub"] = ratio("flask")
        notes.append(
            "flask_websub: its own tasks and storage; two processes stand for Celery's workers, "
            "without a broker, which favours it"
        )
    else:
        notes.append("Flask-WebSub is not installed: vs_flask_websub is left out")
    return {
        "ratios": ratios,
        "figures": {
            **{f"{name}_deliveries_per_s": rate for name, rate in rates.items()},
            "ours_ms_to_reach_all": round(median(took["ours"]) * 1e3),
            "ours_cpu_us_per_delivery": round(cpu / rounds / callbacks * 1e6),
            "deliveries_verified": callbacks * (rounds + 1) * len(contenders),
        },
        "notes": notes,
    }


def _check(name: str, found: list[tuple[float, str]], sink: Sink, callbacks: int) -> None:
    paths = sorted(path for _, path in found)
    expected = sorted(sink.callback(each).removeprefix(sink.url) for each in range(callbacks))
    if paths != expected:
        raise RuntimeError(f"{name}: {len(set(paths))} callbacks got {len(paths)} deliveries")


# The hub


def _ours(stack: ExitStack, hub: HubProcess, sink: Sink, callbacks: int) -> Callable[[int], float]:
    topic = sink.put("feed.atom", atom(0))

    async def subscribe() -> None:
        slots = asyncio.Semaphore(32)

        async def one(number: int) -> None:
            form = {"hub.mode": "subscribe", "hub.topic": topic,
                    "hub.callback": sink.callback(number),
                    "hub.secret": f"secret {number}"}  # fmt: skip
            async with slots, client.post(f"{hub.url}/hub", data=form) as answer:
                if answer.status != 202:
                    raise RuntimeError(f"the hub answered {answer.status}: {await answer.text()}")

        async with aiohttp.ClientSession() as client:
            await asyncio.gather(*(one(each) for each in range(callbacks)))

    loop.run(subscribe())
    hub.wait_for("verifications_confirmed", callbacks)

    publisher = HTTPConnection(hub.url.removeprefix("http://"), timeout=PATIENCE)
    stack.callback(publisher.close)
    form = urlencode({"hub.mode": "publish", "hub.url": topic})
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    def deliver(number: int) -> float:
        sink.put("feed.atom", atom(number + 1))
        began = time.time()
        publisher.request("POST", "/hub", form, kind)
        answer = publisher.getresponse()
        if answer.status != 204:
            raise RuntimeError(f"the hub answered {answer.status}: {answer.read().decode()}")
        answer.read()
        return began

    return deliver


# A bare client, in its own process


def _bare(stack: ExitStack, sink: Sink, callbacks: int) -> Callable[[int], float]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.hub_fanout", sink.url, str(callbacks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    stack.callback(process.kill)

    def deliver(number: int) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        return float(json.loads(process.stdout.readline()))

    return deliver


async def _bare_client(url: str, callbacks: int) -> None:
    targets = [f"{url}/callback/{each}" for each in range(callbacks)]
    questions = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(questions), sys.stdin
    )
    async with aiohttp.ClientSession() as client:
        while line := await questions.readline():
            body = atom(int(line) + 1)
            link = f'<{url}/hub>; rel="hub", <{url}/topics/feed.atom>; rel="self"'
            work = iter(
                [
                    (
                        target,
                        {
                            "Content-Type": "application/atom+xml",
                            "Link": link,
                            "X-Hub-Signature": signature(b"secret %d" % number, body),
                        },
                    )
                    for number, target in enumerate(targets)
                ]
            )

            async def deliver(work: Any = work, body: bytes = body) -> None:
                for target, headers in work:
                    async with client.post(target, data=body, headers=headers) as answer:
                        await answer.read()
                        if answer.status != 204:
                            raise RuntimeError(f"the sink answered {answer.status}")

            print(json.dumps(time.time()), flush=True)
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(deliver())


# Flask-WebSub


class _Task:
    """What Celery makes of a function: called with its work by a process of the pool."""

    def __init__(self, function: Callable[..., Any], name: str, pool: Executor | None) -> None:
        self._function = function
        self._name = name
        self._pool = pool

    def delay(self, *arguments: Any) -> Any:
        if self._pool is None:
            return self._function(*arguments)
        return self._pool.submit(_work, self._name, arguments)

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class _Celery:
    def __init__(self, pool: Executor | None) -> None:
        self._pool = pool

    def task(self, bind: bool = False, **_: Any) -> Callable[[Callable[..., Any]], _Task]:
        def made(function: Callable[..., Any]) -> _Task:
            whole = (lambda *arguments: function(None, *arguments)) if bind else function
            # Only the deliveries are worth a process.
            return _Task(whole, "make_request_retrying", self._pool if bind else None)

        return made


_worker: Any = None


def _flask_hub(database: str, pool: Executor | None) -> Any:
    from flask_websub.hub import Hub, SQLite3HubStorage

    return Hub(SQLite3HubStorage(database), _Celery(pool), SIGNATURE_ALGORITHM="sha256")


def _begin_work(database: str) -> None:
    global _worker
    _worker = _flask_hub(database, None)


def _work(name: str, arguments: tuple[Any, ...]) -> None:
    getattr(_worker, name)(*arguments)


def _flask(stack: ExitStack, directory: Path, sink: Sink, callbacks: int) -> Callable[[int], float]:
    database = str(directory / "flask.sqlite")
    pool = stack.enter_context(
        ProcessPoolExecutor(
            2, multiprocessing.get_context("spawn"), initializer=_begin_work, initargs=(database,)
        )
    )
    hub = _flask_hub(database, pool)
    topic = f"{sink.url}/topics/flask.atom"
    for number in range(callbacks):
        hub.storage[topic, sink.callback(number)] = {
            "lease_seconds": 86_400,
            "secret": f"secret {number}",
        }

    def deliver(number: int) -> float:
        sink.put("flask.atom", atom(number + 1))
        began = time.time()
        hub.send_change_notification.delay(topic)
        return began

    return deliver


if __name__ == "__main__":
    loop.run(_bare_client(sys.argv[1], int(sys.argv[2])))
