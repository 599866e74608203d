"""Conversations through the API of the world: two users in two domains, over the fabric."""

from __future__ import annotations

import asyncio
import secrets

from demo.conversations import GREETING
from tests.demo.up import Reader, until

ALICE, BOB = "alice@site-a.test", "bob@site-b.test"


def messages(page, me):
    """Without what the world begins with."""
    every = [each for each in page.of("chat") if each["me"] == me]
    return [each for each in every if each["text"] != GREETING]


def texts(page, me):
    return [each["text"] for each in messages(page, me)]


def here(page):
    return {each["jid"] for each in page.of("presence") if each["state"] == "here"}


async def say(page, me, to, text, name=None):
    name = name or secrets.token_hex(16)
    body = {"me": me, "to": to, "text": text, "id": name}
    status, answer = await page.ask("POST", "/api/chat", body)
    assert (status, answer.get("id")) == (200, name), answer
    return answer["position"]


def test_two_users_talk_see_each_other_and_find_their_history(world):
    async def main():
        async with Reader(world, "both") as page:
            await page.wish(
                chats=[{"me": ALICE, "with": BOB, "after": None}, {"me": BOB, "with": ALICE}]
            )
            said = []
            for number in range(3):
                for me, to in ((ALICE, BOB), (BOB, ALICE)):
                    said.append(f"{number} <b>from</b> {me} & co.")
                    await say(page, me, to, said[-1])
                    for reader in (ALICE, BOB):
                        await until(lambda reader=reader: texts(page, reader) == said, reader)
            await until(lambda: here(page) == {ALICE, BOB}, "both to be here")
            after = [each["after"] for each in messages(page, ALICE)]
        async with Reader(world, "reloaded") as page:
            await page.wish(chats=[{"me": ALICE, "with": BOB}])
            await until(lambda: texts(page, ALICE) == said, "the history")
        async with Reader(world, "resumed") as page:
            await page.wish(chats=[{"me": ALICE, "with": BOB, "after": after[3]}])
            await until(lambda: texts(page, ALICE) == said[4:], "what came after")
            assert not page.of("gap")
            assert not page.of("reset")

    asyncio.run(main())


def test_a_message_that_is_sent_again_comes_once(world):
    async def main():
        async with Reader(world, "again") as page:
            await page.wish(chats=[{"me": BOB, "with": "carol@site-a.test"}])
            name = secrets.token_hex(16)
            first = await say(page, "carol@site-a.test", BOB, "once", name)
            assert await say(page, "carol@site-a.test", BOB, "once", name) == first
            await say(page, "carol@site-a.test", BOB, "last")
            await until(lambda: "last" in texts(page, BOB))
            assert texts(page, BOB) == ["once", "last"]

    asyncio.run(main())


def test_what_the_psph_refuses_is_passed_on(world):
    async def main():
        async with Reader(world, "refused") as page:
            body = {"me": ALICE, "to": "nobody", "text": "x", "id": secrets.token_hex(16)}
            status, answer = await page.ask("POST", "/api/chat", body)
            assert status == 400
            assert answer["error"]
            await page.wish(chats=[{"me": ALICE, "with": "no jid at all"}])
            (refused,) = await until(lambda: page.of("refused"))
            assert (refused["me"], refused["with"]) == (ALICE, "no jid at all")

    asyncio.run(main())


def test_a_world_begins_with_a_line_of_chat(world):
    async def main():
        async with Reader(world, "greeted") as page:
            await page.wish(chats=[{"me": BOB, "with": ALICE}])
            (said,) = await until(lambda: [c for c in page.of("chat") if c["text"] == GREETING])
            assert (said["from"], said["to"]) == (ALICE, BOB)

    asyncio.run(main())


def test_each_topic_and_conversation_says_how_it_stands(world):
    def states(page, whose):
        return [each["state"] for each in page.of("state") if whose.items() <= each.items()]

    async def main():
        async with Reader(world, "standing") as page:
            topic = page.topic(1)["url"]
            mine = {"domain": "site-a.test", "topic": topic}
            theirs = {"domain": "site-b.test", "topic": topic}
            alice, bob = {"me": ALICE, "with": BOB}, {"me": BOB, "with": ALICE}
            await page.wish(feeds=[mine, theirs], chats=[alice, bob])
            for each in (mine, theirs, alice, bob):
                await until(lambda each=each: states(page, each) == ["live"])
            switch = "/api/network/nodes/psph-a"
            assert (await page.ask("POST", switch, {"up": False}))[0] == 200
            try:
                for each in (mine, alice):
                    await until(lambda each=each: states(page, each)[-1] == "stopped")
            finally:
                assert (await page.ask("POST", switch, {"up": True}))[0] == 200
            for each in (mine, alice):
                await until(lambda each=each: states(page, each)[-1] == "live")
            for each in (theirs, bob):
                assert states(page, each) == ["live"]

    asyncio.run(main())


def test_a_psph_that_is_stopped_is_said_to_be(world):
    async def main():
        async with Reader(world, "stopped") as page:
            switch, name = "/api/network/nodes/psph-a", secrets.token_hex(16)
            body = {"me": ALICE, "to": BOB, "text": "later", "id": name}
            assert (await page.ask("POST", switch, {"up": False}))[0] == 200
            try:
                status, answer = await page.ask("POST", "/api/chat", body)
            finally:
                assert (await page.ask("POST", switch, {"up": True}))[0] == 200
            assert status == 502
            assert answer["error"] == "the PSPH of site-a.test does not answer: is it stopped?"

            async def taken():
                return (await page.ask("POST", "/api/chat", body))[0] == 200

            await until(taken, "the same message to be taken")

    asyncio.run(main())
