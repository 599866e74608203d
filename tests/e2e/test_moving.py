"""A client that moves between three PSPHs while updates come, and the one it has just left is
killed: `psph roam` prints every update once, in order.

A fourth PSPH, of another domain, is where the updates enter; they cross the fabric. Those of a
native topic enter at a node of the fabric that is no PSPH. At full size it is 5,000
updates.

Before that, a client walks among five of them, round and round, and later rounds find it expected;
at full size for three quarters of a minute.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
import urllib.error
import urllib.request

import aiohttp
import pyarrow.parquet
import pytest

from bootstrap import Resolver
from mobility import ClientSettings, Quota, Service, Update
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime.client import FabricClient
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.sealing import FabricKeys
from psph.mobility.peers import KnownProxies
from psph.mobility.roamer import Roamer
from tests.e2e.domains import PSPH, Domains, Psph
from tests.e2e.moving_page import moving_page
from tests.e2e.node_process import PATIENCE, eventually
from tests.e2e.walking import Walk, forget, left_behind
from tests.push_hub.browser import installed
from tests.sizes import size

A, B = "site-a.test", "site-b.test"
PLACES = tuple(f"{number}.{A}" for number in ("one", "two", "three"))
WALKED = (*PLACES, f"four.{A}", B)
"""Round and round; the first walk over each edge is the one that teaches it."""
WALK = size(0, 45)
"""Seconds, and three rounds at least."""
UPDATES, KILLS = size(600, 5_000), size(2, 5)
RATE = 200.0
LONG = 3 * PATIENCE
SCOPE = "5c" * 32
"""Whose native topics the PSPHs pass on."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    # One of them keeps buffers though the history would do: clients collect from it.
    one, two, three = PLACES
    buffering = "buffer = true"
    psphs = [
        Psph(A, one, mobility=buffering), Psph(A, two), Psph(A, three),
        Psph(A, WALKED[3], mobility=buffering), B,
    ]  # fmt: skip
    with Domains(
        tmp_path_factory.mktemp("moving"), psphs, nodes=3, linger=5.0,
        traces="rotate_seconds = 1.0",
        mobility=f'native_scopes = ["{SCOPE}"]\nprepare_lapse_s = 6\n',
    ) as domains:  # fmt: skip
        domains.start()
        yield domains


class Publishing:
    """Numbered updates of one topic at its own hub."""

    def __init__(self, session, world, topic):
        self.session, self.topic = session, topic
        self.url = f"{world.hub(B)}/publish"
        self.headers = {"Authorization": f"Bearer {world.token(B)}", "Content-Type": "text/plain"}

    async def publish(self, number):
        async with self.session.post(
            self.url, params={"topic": self.topic}, data=str(number), headers=self.headers
        ) as answer:
            assert answer.status == 201, await answer.text()

    async def publish_many(self, enough, rate=RATE):
        """So many each second until it is enough; how many, in how many seconds."""
        began, number = time.monotonic(), 0
        while not enough(number):
            number += 1
            await self.publish(number)
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        return number, time.monotonic() - began


class Roaming:
    """A `psph roam --json`, and what it said."""

    def __init__(self, process):
        self.process = process
        self.said = []
        self.last = 0
        """The number of the last update."""

    def of(self, event):
        return [each for each in self.said if each["event"] == event]

    async def next(self):
        """What it says next."""
        async with asyncio.timeout(LONG):
            line = await self.process.stdout.readline()
        assert line, f"it ended: {self.said[-5:]}"
        said = json.loads(line)
        self.said.append(said)
        if said["event"] == "update":
            self.last = int(said["body"])
        return said

    async def until(self, event):
        while (said := await self.next())["event"] != event:
            pass
        return said

    async def quit(self):
        """End it as a user would, and read on to its end."""
        self.process.stdin.write(b"quit\n")
        async with asyncio.timeout(LONG):
            rest = await self.process.stdout.read()
            self.said += map(json.loads, rest.splitlines())
            assert await self.process.wait() == 0

    async def end(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def roam(world, topic, *more):
    hubs = [option for each in PLACES for option in ("--hub", world.hub(each))]
    return Roaming(
        await asyncio.create_subprocess_exec(
            *PSPH, "roam", topic, *hubs, "--json", *map(str, more),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
        )
    )  # fmt: skip


class Killer:
    """Kills the PSPH that the client has just left, unless one is down already."""

    def __init__(self, world):
        self._proxies = {world.hub(each): world.proxies[each] for each in PLACES}
        self._task = None
        self.kills = 0

    def left(self, hub):
        if self._task is None or self._task.done():
            if self._task is not None:
                self._task.result()
            self.kills += 1
            self._task = asyncio.create_task(asyncio.to_thread(self._again, self._proxies[hub]))

    def _again(self, proxy):
        proxy.kill()
        proxy.launch()
        proxy.ready()

    async def end(self):
        if self._task is not None:
            await self._task


# The walk comes first: nobody else is there yet, so that nothing may be left when it is over.


@pytest.mark.timeout(300)
def test_a_walk_among_five_is_prepared_and_leaves_nothing_behind(world):
    topic = f"http://news.{B}/walk"
    seen, others = [], []

    def consume(event):
        if isinstance(event, Update):
            seen.append(int(event.message.body))
        else:
            others.append(event)

    async def main():
        over = asyncio.Event()
        # More than any history: places that buffer do so, and contexts there.
        settings = ClientSettings(service=Service(topic=Quota(2_000)))
        async with (
            aiohttp.ClientSession() as session,
            Roamer([topic], consume=consume, settings=settings) as roamer,
        ):
            publishing = Publishing(session, world, topic)
            await publishing.publish(0)
            walk = Walk(world, WALKED, roamer)
            await walk.go(WALKED[0])
            task = asyncio.create_task(publishing.publish_many(lambda n: over.is_set(), rate=20.0))
            try:
                await walk.round()
                taught = await asyncio.to_thread(walk.counted)
                began, rounds = time.monotonic(), 1
                while rounds < 3 or time.monotonic() - began < WALK:
                    rounds += 1
                    await walk.round(kill=rounds == 2)
            finally:
                over.set()
            last, _ = await task
            async with asyncio.timeout(PATIENCE):
                while not seen or seen[-1] != last:
                    await asyncio.sleep(0.02)
            counted = await asyncio.to_thread(walk.counted)
            assert await roamer.move_out()
            await forget(session, roamer)
        return walk, last, [now - then for now, then in zip(counted, taught, strict=True)]

    walk, last, (prepared, unprepared) = asyncio.run(main())
    assert seen == list(range(1, last + 1))
    assert not others
    assert walk.kills == 2
    # All but those whose place died, or could not be told in time.
    assert prepared > unprepared
    print(f"{walk.moves} moves, {last} updates, then {prepared} prepared and {unprepared} not")
    for place in WALKED:
        eventually(
            lambda place=place: not any(left_behind(walk.status(place)).values()),
            say=lambda place=place: f"{place}: {left_behind(walk.status(place))}",
        )


def test_the_neighbour_graph_was_learned_from_the_walk(world):
    """That of the test before; the command shows it."""
    node = f"127.0.0.1:{world.proxies[WALKED[0]].admin}"
    command = [*PSPH, "mobility", "status", "--node", node]
    document = subprocess.run([*command, "--json"], capture_output=True, check=True)
    edges = {each["proxy"]: each for each in json.loads(document.stdout)["prepare"]["neighbours"]}
    assert set(edges) == {world.hub(WALKED[1]), world.hub(B)}
    assert edges[world.hub(B)]["came"] >= 2
    assert edges[world.hub(WALKED[1])]["went"] >= 2
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert world.hub(B) in shown
    assert "hand-offs prepared" in shown


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_while_the_proxy_just_left_is_killed(world, tmp_path):
    topic = f"http://news.{B}/moves"

    async def main():
        killer = Killer(world)
        async with aiohttp.ClientSession() as session:
            publishing = Publishing(session, world, topic)
            await publishing.publish(0)
            roaming = await roam(world, topic, "--every", 1, "--state", tmp_path / "state")
            try:
                at = (await roaming.until("moved_in"))["proxy"]
                task = asyncio.create_task(
                    publishing.publish_many(lambda n: n >= UPDATES and killer.kills >= KILLS)
                )
                while not task.done() or roaming.last < task.result()[0]:
                    said = await roaming.next()
                    if said["event"] == "moved_in" and said["proxy"] != at:
                        killer.left(at)
                        at = said["proxy"]
                await roaming.quit()
            finally:
                await roaming.end()
                await killer.end()
            return roaming, killer.kills, *task.result()

    roaming, kills, published, took = asyncio.run(main())
    assert [int(each["body"]) for each in roaming.of("update")] == list(range(1, published + 1))
    assert not roaming.of("gap")
    assert not roaming.of("reset")
    moves = len(roaming.of("moved_in"))
    print(f"{published} updates in {took:.1f} s, {moves} move-ins, {kills} kills")


@pytest.mark.timeout(300)
def test_a_native_topic_of_the_fabric_is_followed_from_place_to_place(world):
    """Its publisher is a node of the fabric that knows nothing of hubs."""
    sid, rid = bytes.fromhex(SCOPE), bytes.fromhex("ab" * 32)
    topic = f"psirp:{sid.hex()}/{rid.hex()}"
    settings = FabricSettings(
        keys=FabricKeys("end to end domains"), link_seed=b"end to end domains",
        hello_interval=200 * MILLISECOND,
        # Of the world's: whoever renews less often than its servers forget is forgotten.
        rendezvous=RendezvousSettings(members=("n0", "n1"), lease=6 * SECOND, settle=2 * SECOND),
    )  # fmt: skip

    async def publish(fabric, killer):
        number = 0
        while number < 200 or not killer.kills:
            number += 1
            await fabric.publish(sid, rid, b"%d" % number, {"content_type": "text/plain"})
            await asyncio.sleep(0.01)
        return number

    async def main():
        killer = Killer(world)
        async with FabricClient.connect(
            "sensor", servers=[("127.0.0.1", world.ports["n0"])], settings=settings,
            timeout=PATIENCE,
        ) as fabric:  # fmt: skip
            await fabric.publish(sid, rid, b"0")
            roaming = await roam(world, topic, "--every", 1)
            try:
                at = (await roaming.until("moved_in"))["proxy"]
                task = asyncio.create_task(publish(fabric, killer))
                while not task.done() or roaming.last < task.result():
                    said = await roaming.next()
                    if said["event"] == "moved_in" and said["proxy"] != at:
                        killer.left(at)
                        at = said["proxy"]
                await roaming.quit()
            finally:
                await roaming.end()
                await killer.end()
            return roaming, task.result()

    roaming, published = asyncio.run(main())
    updates = roaming.of("update")
    # What was there before it came may be the first.
    came = [int(each["body"]) for each in updates if each["body"] != "0"]
    assert came == list(range(1, published + 1))
    assert updates[-1]["kind"] == "text/plain"
    assert not roaming.of("gap")
    # Another scope is none of the client's business.
    url = f"{world.hub(PLACES[0])}/mobility/native?topic=psirp:{'00' * 32}/{rid.hex()}"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url, timeout=PATIENCE)


@pytest.mark.timeout(300)
def test_a_moving_publisher_is_heard_once_and_in_order(world):
    """Through three PSPHs in turn, to the topic's own hub, of which the client knows nothing."""
    topic, end = f"http://news.{B}/from-a-train", 0
    token = world.proxies[B].directory / "data" / "admin-token"

    async def hear(session):
        heard = []
        async with session.get(f"{world.hub(B)}/stream", params={"topic": topic}) as stream:
            async for line in stream.content:
                if line.startswith(b"data: {"):
                    body = json.loads(line.removeprefix(b"data: "))["body_b64"]
                    heard.append(int(base64.b64decode(body)))
                    if heard[-1] == end:
                        break
        return heard

    async def publish(roaming):
        """While it moves, until it has been at four places."""
        number = 0
        while len(roaming.of("moved_in")) < 4:
            number += 1
            roaming.process.stdin.write(f"publish {topic} {number}\n".encode())
            # Slow moves get fewer publications, or the backlog would slow them further.
            await asyncio.sleep(0.02 if number < 300 else 1)
        roaming.process.stdin.write(f"publish {topic} {end}\n".encode())
        return number

    async def main():
        timeout = aiohttp.ClientTimeout(total=LONG)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            hearing = asyncio.create_task(hear(session))
            roaming = await roam(world, topic, "--every", 0.5, "--token-file", token)
            publishing = asyncio.create_task(publish(roaming))
            try:
                while not publishing.done():
                    await roaming.next()
                heard = await hearing
                await roaming.quit()
            finally:
                publishing.cancel()
                await roaming.end()
            return heard, publishing.result()

    heard, published = asyncio.run(main())
    assert heard == [*range(1, published + 1), end]


def recorded(world, topic):
    """What the topic's own hub has, from the beginning."""
    url = f"{world.hub(B)}/stream?base=event&content=whole&after=&topic={topic}"
    found = []
    with urllib.request.urlopen(url, timeout=PATIENCE) as stream:
        for line in stream:
            if line.startswith(b"event: base"):
                break
            if line.startswith(b"data: {"):
                body = json.loads(line.removeprefix(b"data: "))["body_b64"]
                found.append(int(base64.b64decode(body)))
    return found


@pytest.mark.timeout(300)
@pytest.mark.skipif(installed() is None, reason="Chromium is not installed")
def test_what_a_page_publishes_while_it_moves_comes_once_and_in_order(world):
    """The hub that it has just left is dead, and it is loaded again with publications in hand."""
    topic, here = f"http://news.{B}/from-a-page", PLACES[1:]
    dead = world.proxies[here[0]]
    keep_publishing = """topic => {
        const publish = () => {
            if (roamer.unsent >= 50) return;
            roamer.publish(topic, `${(window.count = (window.count ?? 0) + 1)}`);
        };
        window.publishing = setInterval(publish, 5);
    }"""
    hubs = [world.hub(each) for each in here]
    with moving_page(name="publisher", hubs=hubs, token=world.token(B)) as moving:
        moving.do("() => { roamer.start(); }")
        moving.do(keep_publishing, topic)
        moving.until("told.filter(({type}) => type === 'published').length >= 10")
        moving.do("hub => { roamer.move(hub); }", hubs[1])
        dead.kill()
        try:
            moving.until("roamer.hub === roamer.hubs[1] && roamer.stage === 'live'")
            moving.until("told.filter(({type}) => type === 'published').length >= 30")
            # Nowhere, and then in another life of the page: what was not sent is.
            moving.do("() => roamer.stop()")
            moving.until("roamer.unsent >= 20")
            count = moving.do("() => { clearInterval(publishing); return count; }")
            moving.load()
            assert moving.do("() => roamer.unsent") >= 20
            moving.do("() => { roamer.start(); }")
            moving.until("roamer.unsent === 0")
            # In a tab that is not the client: the one that is sends it.
            last = moving.tab().evaluate("topic => roamer.publish(topic, '0')", topic)
            moving.until(f"told.some(({{position}}) => position === '{last}')")
        finally:
            dead.launch()
            dead.ready()
    assert recorded(world, topic) == [*range(1, count + 1), 0]


def test_a_proxy_is_known_by_the_records_of_its_own_zone(world):
    port = world.hub_ports[PLACES[0]]

    async def main():
        async with Resolver([f"127.0.0.1:{world.dns_port}"]) as resolver:
            known = KnownProxies([world.hub(B)], resolver)
            assert await known.is_known(f"http://psph.{A}:{port}")
            assert await known.is_known(world.hub(B))  # configured
            for stranger in (
                f"http://psph.{A}:1", f"http://psph.{B}:{port}", f"http://news.{A}:{port}",
                f"http://psph.{A}:{port}/x", world.hub(PLACES[0]),
            ):  # fmt: skip
                assert not await known.is_known(stranger)
                assert not known.may_be(stranger)
            # Nobody can tell anything of this zone: not now, and perhaps later.
            assert not await known.is_known("http://no-such-zone.test:80")

    asyncio.run(main())


def test_hand_offs_are_in_the_trace_files(world):
    """Those of the moves above."""
    wanted = {"move_in_begin", "move_in_end", "move_out"}

    def traced():
        found = set()
        for place in PLACES:
            directory = world.proxies[place].directory / "traces"
            for path in directory.rglob("*.parquet"):
                if not path.name.startswith("_"):
                    table = pyarrow.parquet.read_table(path, columns=["stage", "subscriber"])
                    found |= {
                        row["stage"] for row in table.to_pylist() if row["stage"] in wanted
                        and len(row["subscriber"]) == 64
                    }  # fmt: skip
        return found == wanted

    eventually(traced)


def test_the_status_of_a_mobility_proxy(world):
    node = f"127.0.0.1:{world.proxies[PLACES[0]].admin}"
    shown = subprocess.run(
        [*PSPH, "mobility", "status", "--node", node], capture_output=True, text=True, check=True
    )
    assert world.hub(PLACES[0]) in shown.stdout
    # Those that were killed since have forgotten what they were asked before.
    asked = 0
    for place in PLACES:
        command = [*PSPH, "mobility", "status", "--node", f"127.0.0.1:{world.proxies[place].admin}"]
        document = subprocess.run([*command, "--json"], capture_output=True, check=True)
        asked += json.loads(document.stdout)["counters"]["asked"]
    assert asked > 0
    url = f"http://{node}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        assert b'psph_mobility_events_total{what="asked"}' in answer.read()
