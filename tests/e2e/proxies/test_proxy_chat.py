"""Chat between users of two domains, each at the PSPH of their own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp

from identifiers import conversation_topic
from psph.chat import message as messages
from psph.chat.message import CONTENT_TYPE, Message
from psph.chat.tokens import token_of
from psph.proxy import mapping
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.fabric_user import STRANGERS_KEY, fabric_user, publish
from tests.e2e.proxies.names import A, B
from tests.e2e.proxies.test_proxy_forgeries import metric
from tests.psph.chat.room import Listener, new_id


def token(world, jid):
    return token_of(world.keys[jid.partition("@")[2]].private, jid)


def at(world, jid):
    """The PSPH of somebody."""
    return world.hub(jid.partition("@")[2])


class Chatting:
    """Two who chat, each at the PSPH of their domain."""

    def __init__(self, world, name):
        self.world = world
        self.alice, self.bob = f"alice-{name}@{A}", f"bob-{name}@{B}"
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30)
        )

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._session.close()

    async def send(self, sender, recipient, text):
        body = {"from": sender, "to": recipient, "text": text, "id": new_id()}
        headers = {"Authorization": f"Bearer {token(self.world, sender)}"}
        async with self._session.post(
            f"{at(self.world, sender)}/chat/messages", json=body, headers=headers
        ) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    @asynccontextmanager
    async def listen(self, me, other, **query):
        listener = Listener()
        query = {"me": me, "with": other, "token": token(self.world, me), **query}
        async with self._session.get(f"{at(self.world, me)}/chat/stream", params=query) as answer:
            assert answer.status == 200, await answer.text()
            task = asyncio.create_task(listener.read(answer.content))
            try:
                yield listener
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def test_a_conversation_crosses_the_fabric_both_ways_in_order(world):
    async def story(around):
        async with Chatting(world, "both") as chat:
            alice, bob = chat.alice, chat.bob
            async with chat.listen(alice, bob) as hers, chat.listen(bob, alice) as his:
                for number in range(10):
                    await chat.send(alice, bob, f"alice {number // 2}")
                    await chat.send(bob, alice, f"bob {number}")
                await until(
                    lambda: len(hers.texts) == len(his.texts) == 20,
                    lambda: (hers.texts, his.texts),
                )
                for listener in (hers, his):
                    said = listener.texts
                    # Those that are alike are two, and each side's are in order.
                    assert [t for t in said if t[0] == "a"] == [
                        f"alice {n // 2}" for n in range(10)
                    ]
                    assert [t for t in said if t[0] == "b"] == [f"bob {n}" for n in range(10)]
                assert {each["position"] for each in hers.of("message")} == {
                    each["position"] for each in his.of("message")
                }
                await until(lambda: hers.states(bob)[-1] == his.states(alice)[-1] == "here")
            last = his.last_id
            await chat.send(alice, bob, "while bob was away")
            async with chat.listen(bob, alice, after=last) as again:
                await until(lambda: again.texts, lambda: around.status(B))
                assert again.texts == ["while bob was away"]

    run(world, story)


def test_whoever_comes_for_the_first_time_gets_what_was_written_before(world):
    async def story(around):
        async with Chatting(world, "early") as chat:
            for number in range(5):
                await chat.send(chat.alice, chat.bob, f"{number}")
            async with chat.listen(chat.bob, chat.alice) as bob:
                await until(lambda: len(bob.texts) >= 5, lambda: around.status(B))
                assert bob.texts == ["0", "1", "2", "3", "4"]

    run(world, story)


def test_nobody_in_the_fabric_writes_as_somebody_of_a_zone_without_its_key(world):
    async def story(around):
        async with Chatting(world, "forged") as chat:
            alice, bob = chat.alice, chat.bob
            topic = conversation_topic(alice, bob)
            metadata = {mapping.TOPIC: topic, mapping.CONTENT_TYPE: CONTENT_TYPE}
            forged = messages.write(Message(alice, "send money"))
            async with chat.listen(bob, alice) as his:
                await chat.send(alice, bob, "true")
                await until(lambda: his.texts)
                for number, (key, what) in enumerate(
                    [(None, "no_signature"), (STRANGERS_KEY, "wrong_key")]
                ):
                    known = metric(world, B, "psph_publications", what)
                    async with fabric_user(world, f"impostor{number}") as impostor:
                        await publish(impostor, topic, forged, metadata, key=key)
                        await until(
                            lambda known=known, what=what: (
                                metric(world, B, "psph_publications", what) > known
                            ),
                            lambda: around.status(B),
                        )
                await chat.send(alice, bob, "true again")
                await until(lambda: "true again" in his.texts)
                assert his.texts == ["true", "true again"]

    run(world, story)
