"""A domain with two PSPHs whose publisher sends to whichever is there, while each is killed.

A reader in another domain gets every version that was accepted, once, and those of each PSPH in
order. A user of the domain chats meanwhile, at whichever PSPH is there, with one of the other:
every message is shown once and in order, at both ends.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from identifiers import Position
from push_hub.client import StreamFollower, StreamUpdate
from tests.e2e.domains import Domains, Psph
from tests.e2e.node_process import PATIENCE, eventually
from tests.e2e.proxies.around import until
from tests.e2e.talker import Talker, check
from tests.sizes import size

A, B = "site-a.test", "site-b.test"
FIRST, SECOND = f"one.{B}", f"two.{B}"
TOPIC = f"http://news.{B}/direct"
VERSIONS = size(40, 60)


class Publisher:
    """Sends versions, one after the other, to the one it used last or else to the other."""

    def __init__(self, world, session):
        self._world, self._session = world, session
        self._tokens = {name: world.token(name) for name in (FIRST, SECOND)}
        self.at = FIRST
        self.accepted = {}
        self.in_doubt = set()

    async def publish(self, number):
        body = f"version {number}"
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    async with self._session.post(
                        f"{self._world.hub(self.at)}/publish",
                        params={"topic": TOPIC},
                        data=body.encode(),
                        headers={
                            "Authorization": f"Bearer {self._tokens[self.at]}",
                            "Content-Type": "text/plain",
                        },
                    ) as answer:
                        assert answer.status == 201, await answer.text()
                        self.accepted[body] = Position.parse((await answer.json())["position"])
                        return
                except aiohttp.ClientError:
                    self.in_doubt.add(body)
                    self.at = SECOND if self.at == FIRST else FIRST
                    await asyncio.sleep(0.1)


@asynccontextmanager
async def chatting(world):
    """Two talk until everything else is done."""
    bob, alice = f"bob@{B}", f"alice@{A}"
    found = "--dns", f"127.0.0.1:{world.dns_port}"

    async def talk():
        while True:
            for each in both:
                each.say()
            await asyncio.sleep(0.1)

    async with Talker(world, bob, alice, *found) as his, Talker(world, alice, bob, *found) as hers:
        both = his, hers
        await until(lambda: his.notes and hers.notes)
        talking = asyncio.create_task(talk())
        try:
            yield both
        finally:
            talking.cancel()
        await until(
            lambda: all(len(each.lines) >= len(his.said) + len(hers.said) for each in both),
            lambda: [(len(each.of(bob)), len(each.of(alice)), each.notes) for each in both],
        )
        for each in both:
            await each.end()


async def story(world, seen, notices):
    async with chatting(world) as both:
        publisher = await publish(world, seen, notices)
    return publisher, both


async def publish(world, seen, notices):
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=20)

    async def hubs():
        return [world.hub(A) + "/hub"]

    async def read(follower):
        async for event in follower:
            if isinstance(event, StreamUpdate):
                seen.append((event.position, event.content.decode()))
            else:
                notices.append(event)

    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        StreamFollower([TOPIC], hubs, session=session) as follower,
    ):
        reading = asyncio.create_task(read(follower))
        publisher = Publisher(world, session)
        await publisher.publish(0)
        async with asyncio.timeout(PATIENCE):
            while not seen:
                await asyncio.sleep(0.05)
        for number in range(1, VERSIONS):
            if number % 20 == 10:
                # The one that is sent to, and so writes the topic, or is about to.
                dead = publisher.at
                await asyncio.to_thread(world.proxies[dead].kill)
            if number % 20 == 15:
                await asyncio.to_thread(world.proxies[dead].launch)
                await asyncio.to_thread(world.proxies[dead].ready)
            await publisher.publish(number)
            await asyncio.sleep(0.05)
        try:
            async with asyncio.timeout(2 * PATIENCE):
                while set(publisher.accepted.values()) - {position for position, _ in seen}:
                    await asyncio.sleep(0.1)
        finally:
            reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return publisher


@pytest.mark.timeout(420)
def test_nothing_is_lost_when_the_writer_dies_and_comes_back(tmp_path):
    seen, notices = [], []
    with Domains(tmp_path, [A, Psph(B, FIRST), Psph(B, SECOND)]) as world:
        world.start()
        for name in (FIRST, SECOND):
            eventually(lambda name=name: world.proxies[name].ask("/proxy/status")["others"])
        publisher, talkers = asyncio.run(story(world, seen, notices))
    check(*talkers)
    # His PSPH was killed: he has gone on at the other, and perhaps back.
    assert sum("again connected" in note for note in talkers[0].notes) >= 1, talkers[0].notes
    positions = [position for position, _ in seen]
    assert len(set(positions)) == len(positions)
    assert not notices
    for who in {each.publisher for each in positions}:
        own = [each for each in positions if each.publisher == who]
        assert own == sorted(own)
    bodies = [body for _, body in seen]
    repeated = {body for body in bodies if bodies.count(body) > 1}
    # The answer to one that was accepted may have died with the PSPH; it was sent again then.
    assert repeated <= publisher.in_doubt
    assert {position.publisher for position in positions} == {
        each.publisher for each in publisher.accepted.values()
    }
    assert len({position.publisher for position in positions}) == 2
