"""A hub that dies again and again in a storm of updates loses nothing, reorders nothing, and
repeats only what was on its way when it died.

`psph hub` as it ships, with its defaults. 100 callbacks, at full size 200, some of which fail, get
two topics each: one that its publisher sends to the hub, where every version counts, and one that
is fetched, where a later version may stand for an earlier one that waited.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import aiohttp
import pytest

from identifiers import Position, PublisherId
from tests.ports import free_port
from tests.sizes import size

KILLS = size(6, 20)
CALLBACKS = size(100, 200)
ROUNDS = size(12, 40)
SEED = 7
PATIENCE = 60.0
TOPICS = {"sent": 2, "fetched": 2}

HUB = "import sys; from psph.commands.hub import hub; hub(sys.argv[1:], standalone_mode=False)"


def manner(number):
    """How a callback behaves: one in ten each fails with an answer, by a reset, by being slow."""
    return {0: "error", 1: "reset", 2: "slow"}.get(number % 10, "good")


@dataclass
class Storm:
    """The hub and what is known of it from outside."""

    data: object
    port: int
    web: str
    client: aiohttp.ClientSession
    process: subprocess.Popen | None = None
    accepted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Positions, by topic, that the hub answered a publisher with."""
    pinged: dict[str, int] = field(default_factory=dict)
    """The content a topic had when its last ping was accepted."""
    requested: set[tuple[str, str]] = field(default_factory=set)
    """(topic, callback) of requests that were answered 202."""
    in_flight: Counter = field(default_factory=Counter)
    """Delivery ids that were in flight at a death: at how many."""
    running: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def hub(self):
        return f"http://127.0.0.1:{self.port}"

    def topic(self, kind, number):
        return f"{self.web}/{kind}/{number}"

    def callback(self, number, name=""):
        host = self.web.replace("127.0.0.1", f"127.0.1.{1 + number % 50}")
        if manner(number) != "good":
            host = self.web.replace("127.0.0.1", f"127.0.2.{1 + number % 50}")
        return f"{host}/{manner(number)}/{name}{number}"

    def spawn(self):
        command = [sys.executable, "-c", HUB, "--listen", f"127.0.0.1:{self.port}",
                   "--data", str(self.data), "--allow-fetch", "127.0.0.0/8",
                   "--allow-callback", "127.0.0.0/8"]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    async def start(self):
        self.spawn()
        line = await asyncio.to_thread(self.process.stdout.readline)
        if not line.startswith("ready "):
            raise AssertionError(self.process.communicate()[1])
        self.running.set()

    def kill(self):
        """Kill it, and look what it was doing."""
        self.running.clear()
        self.process.send_signal(signal.SIGKILL)
        _, errors = self.process.communicate()
        assert "Traceback" not in errors, errors
        rows = self.query(
            "SELECT s.id, u.publisher, u.epoch, u.version FROM subscriptions s"
            " JOIN deliveries d ON d.id = s.in_flight JOIN updates u ON u.seq = d.seq"
        )
        self.in_flight.update({_delivery_id(*row) for row in rows})

    def query(self, sql):
        with closing(sqlite3.connect(self.data / "hub.sqlite", timeout=30)) as database:
            return database.execute(sql).fetchall()

    async def subscribe(self, topic, callback):
        form = {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": callback,
                "hub.secret": "a secret"}  # fmt: skip
        async with self.client.post(f"{self.hub}/hub", data=form) as answer:
            assert answer.status == 202, await answer.text()
        self.requested.add((topic, callback))

    async def publish(self, topic, number):
        token = (self.data / "admin-token").read_text().strip()
        async with self.client.post(
            f"{self.hub}/publish",
            params={"topic": topic},
            data=f"update {number} ".encode() * 50,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "text/plain"},
        ) as answer:
            assert answer.status == 201, await answer.text()
            self.accepted[topic].add((await answer.json())["position"])

    async def ping(self, topic, number):
        async with self.client.put(topic, data=f"{number} " * 50) as answer:
            assert answer.status == 200
        form = {"hub.mode": "publish", "hub.url": topic}
        async with self.client.post(f"{self.hub}/hub", data=form) as answer:
            assert answer.status == 204, await answer.text()
        self.pinged[topic] = number

    async def settled(self):
        for _ in range(int(PATIENCE / 0.25)):
            (left,) = self.query(
                "SELECT (SELECT count(*) FROM deliveries), (SELECT count(*) FROM verifications),"
                " (SELECT count(*) FROM topics WHERE fetch_due IS NOT NULL)"
            )
            if left == (0, 0, 0):
                return
            await asyncio.sleep(0.25)
        raise AssertionError(f"deliveries, verifications and fetches are left: {left}")


def _delivery_id(subscription, publisher, epoch, version):
    return f"{_position(publisher, epoch, version)}-{subscription}"


def _position(publisher, epoch, version):
    return str(Position(PublisherId(publisher), epoch, version))


async def blow(storm):
    """Updates one after the other. One that fails because the hub dies is not made again: nobody
    was promised anything."""
    for number in range(1, ROUNDS + 1):
        for kind, count in TOPICS.items():
            for each in range(count):
                await storm.running.wait()
                update = storm.publish if kind == "sent" else storm.ping
                try:
                    await update(storm.topic(kind, each), number)
                except aiohttp.ClientError:
                    continue
        await asyncio.sleep(0.3)


async def kill_often(storm):
    chance = random.Random(SEED)
    for number in range(KILLS):
        before = sum(map(len, storm.accepted.values()))
        late = storm.topic("sent", number % 2), storm.callback(3, name=f"late{number}-")
        await asyncio.sleep(chance.uniform(0.05, 0.6))
        for _ in range(100):
            # In the middle of something, as long as there is anything to be in the middle of.
            if sum(map(len, storm.accepted.values())) > before:
                break
            await asyncio.sleep(0.02)
        await storm.subscribe(*late)
        storm.kill()
        await storm.start()


async def weather(tmp_path, web, port):
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
        storm = Storm(tmp_path, port, web, client)
        try:
            await storm.start()
            for number in range(CALLBACKS):
                for kind in TOPICS:
                    await storm.subscribe(storm.topic(kind, number % 2), storm.callback(number))
            await storm.settled()
            async with asyncio.TaskGroup() as group:
                group.create_task(blow(storm))
                group.create_task(kill_often(storm))
            for each in range(TOPICS["fetched"]):
                await storm.ping(storm.topic("fetched", each), ROUNDS + 1)
            await storm.settled()
            async with client.get(f"{web}/log") as answer:
                attempts = await answer.json()
            storm.process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.to_thread(storm.process.communicate, None, PATIENCE)
            assert "Traceback" not in errors, errors
        finally:
            storm.process.kill()
            storm.process.communicate()
    return storm, attempts


@pytest.fixture
def web():
    with subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.hub_web"], stdout=subprocess.PIPE, text=True
    ) as process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


@pytest.mark.timeout(600)  # it starts more than twenty processes, and they have much to do
def test_nothing_is_lost_in_a_storm(tmp_path, web):
    storm, attempts = asyncio.run(weather(tmp_path, web, free_port()))

    versions = defaultdict(list)  # of each topic, in the order they were recorded
    bodies = {}
    for topic, publisher, epoch, version, body in storm.query(
        "SELECT (SELECT canonical FROM topics WHERE id = topic), publisher, epoch, version, body"
        " FROM updates ORDER BY seq"
    ):
        position = _position(publisher, epoch, version)
        versions[topic].append(position)
        bodies[topic, position] = body.decode()
    live = {
        id: (topic, callback)
        for id, topic, callback in storm.query(
            "SELECT id, topic, callback FROM subscriptions WHERE state = 'active'"
        )
    }

    # What was accepted was recorded: updates, pings and subscriptions.
    for topic, positions in storm.accepted.items():
        assert positions <= set(versions[topic])
    for topic, number in storm.pinged.items():
        assert bodies[topic, versions[topic][-1]].split()[0] == str(number)
    assert set(live.values()) == storm.requested
    assert len(live) == 2 * CALLBACKS + KILLS

    # Every (version, live subscription) was delivered, or a later one was where that is enough.
    done = defaultdict(list)  # by subscription, positions in the order of their acknowledgement
    tried = defaultdict(list)
    for callback, identity, body, answered, _, _ in sorted(attempts, key=lambda each: each[4]):
        position, _, subscription = identity.rpartition("-")
        topic, expected = live[int(subscription)]
        assert callback == expected
        assert body == bodies[topic, position]
        tried[int(subscription)].append(versions[topic].index(position))
        if answered:
            done[int(subscription)].append(position)
    superseded = 0
    for subscription, (topic, callback) in live.items():
        got, owed = set(done[subscription]), versions[topic]
        if "/late" in callback:
            # It began somewhere in the middle, and from there on nothing may be missing.
            owed = owed[min((owed.index(each) for each in got), default=len(owed)) :]
        if "/fetched/" in topic:
            superseded += len(set(owed) - got)
            assert owed[-1] in got, f"{callback} lacks the last version of {topic}"
        else:
            assert got == set(owed), f"{callback} lacks versions of {topic}"
    assert sum(len(each) for each in versions.values()) > ROUNDS

    # In order, failed attempts included.
    for subscription, indices in tried.items():
        assert all(a <= b for a, b in pairwise(indices)), live[subscription]

    # A repeat is of something in flight at a death, and at most one for each of those.
    acknowledged = Counter(identity for _, identity, _, answered, _, _ in attempts if answered)
    repeats = {identity: count - 1 for identity, count in acknowledged.items() if count > 1}
    for identity, count in repeats.items():
        assert count <= storm.in_flight[identity], f"{identity} was repeated without a reason"

    # And it was a storm: it died in mid-delivery, callbacks failed, something was superseded.
    assert len(storm.in_flight) >= KILLS
    assert sum(not answered for _, _, _, answered, _, _ in attempts) > CALLBACKS / 10
    print(
        f"{sum(map(len, versions.values()))} versions, {len(live)} subscriptions,"
        f" {len(attempts)} attempts, {len(storm.in_flight)} in flight at {KILLS} deaths,"
        f" {sum(repeats.values())} repeated, {superseded} superseded"
    )
