"""The endpoints of chat at one PSPH: who may write as whom, and what a reader sees."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

import pytest

from identifiers import Position, PublisherId, conversation_topic, identify, jid_topic
from psph.chat import message as messages
from psph.chat import presence
from psph.chat.conversation import presence_of
from psph.chat.message import CONTENT_TYPE, LONGEST, Message
from psph.chat.presence import Presence
from psph.chat.tokens import token_of
from tests.psph.chat.room import ALICE, BOB, EVE, KEY, OLD_KEY, new_id, room
from tests.push_hub.world import run, until

TOPIC = conversation_topic(ALICE, BOB)


def message(**changes):
    return {"from": ALICE, "to": BOB, "text": "hello", "id": new_id(), **changes}


def test_what_is_written_is_read_at_both_ends_in_order(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            listening = chat.listen(ALICE, BOB), chat.listen(BOB, ALICE)
            async with listening[0] as alice, listening[1] as bob:
                sent = []
                for number in range(10):
                    sender, recipient = (ALICE, BOB) if number % 2 else (BOB, ALICE)
                    sent.append(await chat.send(sender, recipient, f"{number}"))
                await until(lambda: len(alice.texts) == len(bob.texts) == 10, "all of them")
                assert alice.texts == bob.texts == [f"{number}" for number in range(10)]
                first = bob.of("message")[1]
                assert first == {
                    "from": ALICE, "to": BOB, "text": "1", "position": sent[1]["position"],
                    "id": sent[1]["id"], "at": first["at"],
                }  # fmt: skip
                assert first["at"].endswith("Z")

    run(story())


def test_two_that_are_alike_are_two_and_one_that_is_sent_again_is_one(tmp_path):
    async def story():
        async with room(tmp_path) as chat, chat.listen(BOB, ALICE) as bob:
            again = new_id()
            first = await chat.send(ALICE, BOB, "ha", again)
            assert await chat.send(ALICE, BOB, "ha") != first
            assert await chat.send(ALICE, BOB, "ha", again) == first
            body = message(text="another", id=again)
            status, answer = await chat.post(body, token_of(KEY, ALICE))
            assert (status, answer) == (409, {"error": "id: another message has this one"})
            await chat.send(ALICE, BOB, "end")
            await until(lambda: "end" in bob.texts, "the end")
            assert bob.texts == ["ha", "ha", "end"]

    run(story())


def test_one_that_is_sent_many_times_at_once_is_one(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            same = new_id()
            sends = [chat.send(ALICE, BOB, "once", same) for _ in range(20)]
            assert len({each["position"] for each in await asyncio.gather(*sends)}) == 1

    run(story())


def test_one_that_is_sent_again_after_a_restart_is_one(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            first = await chat.send(ALICE, BOB, "hello", "a" * 32)
        async with room(tmp_path) as chat:
            assert await chat.send(ALICE, BOB, "hello", "a" * 32) == first
            second = await chat.send(ALICE, BOB, "hello", "b" * 32)
            assert second["position"] != first["position"]

    run(story())


TOKEN = token_of(KEY, ALICE)
REFUSED = {
    "no token": (message(), None, 401, "a token is needed"),
    "a wrong token": (message(), "x" * 43, 403, f"this is not the token of {ALICE}"),
    "another's token": (message(), token_of(KEY, BOB), 403, "this is not the token of"),
    "a token of another key": (message(), token_of(OLD_KEY, ALICE), 403, "this is not the token"),
    "a token that is no text": (message(), "\u00ff\u00fe", 403, "this is not the token"),
    "a user of another domain": (
        message(**{"from": EVE}), token_of(KEY, EVE), 403, "users of elsewhere.test are not served",
    ),
    "a user who is shut out": (
        message(**{"from": "mallory@site-a.test"}), token_of(KEY, "mallory@site-a.test"), 403,
        "mallory@site-a.test is not served here any more",
    ),
    "no JID": (message(**{"from": "alice"}), TOKEN, 400, "not complete"),
    "a device": (message(to="bob@site-b.test/phone"), TOKEN, 400, "names one device"),
    "oneself": (message(to=ALICE), TOKEN, 400, "to talk to themselves"),
    "no id": (message(id=""), TOKEN, 400, "id: give each message"),
    "a long id": (message(id="a" * 33), TOKEN, 400, "id: give each message"),
    "an id of other letters": (message(id="A" * 32), TOKEN, 400, "id: give each message"),
    "nothing": (message(text=" \n"), TOKEN, 400, "a message says something"),
    "too much": (message(text="x" * (LONGEST + 1)), TOKEN, 413, f"at most {LONGEST} characters"),
    "far too much": (message(text="x" * (200 << 10)), TOKEN, 413, f"at most {LONGEST} characters"),
    "no JSON": (b"{", TOKEN, 400, "as JSON"),
    "not UTF-8": (b'{"from": "\xff"}', TOKEN, 400, "as JSON"),
    "something else": ([1], TOKEN, 400, "as JSON"),
    "no recipient": ({"from": ALICE, "text": "x", "id": "a" * 32}, TOKEN, 400, "field `to`"),
}  # fmt: skip


def test_whoever_is_not_the_sender_is_refused_and_so_is_what_is_no_message(tmp_path):
    async def story():
        async with room(tmp_path, refused=["Mallory@site-a.test"]) as chat:
            for what, (body, token, status, reason) in REFUSED.items():
                found, answer = await chat.post(body, token)
                assert found == status, (what, answer)
                assert reason in answer["error"], what
                assert "\n" not in answer["error"], what
            assert await chat.hub.store.last_seq() == 0

    run(story())


def test_a_message_of_the_greatest_length_is_taken(tmp_path):
    async def story():
        async with room(tmp_path) as chat, chat.listen(BOB, ALICE) as bob:
            text = "\U0001f600" * LONGEST
            await chat.send(ALICE, BOB, text)
            await until(lambda: bob.texts, "the message")
            assert bob.texts == [text]

    run(story())


def test_texts_arrive_as_they_were_written(tmp_path):
    texts = ["<b>&amp; \"'", "]]>", "line\nline", "\t tab", "event: message\ndata: {}", "\u2028 é"]

    async def story():
        async with room(tmp_path) as chat, chat.listen(BOB, ALICE) as bob:
            for text in texts:
                await chat.send(ALICE, BOB, text)
            await until(lambda: len(bob.texts) == len(texts), "all of them")
            assert bob.texts == [text.strip() for text in texts]

    run(story())


def test_two_keys_are_accepted_while_one_replaces_the_other(tmp_path):
    async def story():
        async with room(tmp_path, keys=(KEY, OLD_KEY)) as chat:
            for key in (KEY, OLD_KEY):
                status, answer = await chat.post(message(), token_of(key, ALICE))
                assert status == 200, answer

    run(story())


def test_without_a_key_there_is_no_chat(tmp_path):
    async def story():
        async with room(tmp_path, keys=()) as chat:
            status, answer = await chat.post(message(), TOKEN)
            assert (status, "bootstrap.zone_key_files" in answer["error"]) == (503, True)

    run(story())


def test_whoever_writes_too_much_waits(tmp_path):
    async def story():
        async with room(tmp_path, messages_per_s=0.1) as chat:
            await chat.send(ALICE, BOB, "one")
            status, answer = await chat.post(message(), TOKEN)
            assert (status, "writes very much" in answer["error"]) == (429, True)
            await chat.send(BOB, ALICE, "others need not")

    run(story())


def test_a_reader_shows_their_own_token(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            path = f"/chat/stream?me={ALICE}&with={BOB}"
            for token, status in [("", 401), (token_of(KEY, BOB), 403), ("x", 403)]:
                found, text = await chat.get(f"{path}&token={token}")
                assert found == status
                assert "\n" not in json.loads(text)["error"]
            async with chat.client.get(f"{chat.url}{path}&token={TOKEN}") as answer:
                assert answer.status == 200

    run(story())


@pytest.mark.parametrize(
    "query",
    [
        "",
        f"with={ALICE}",
        "with=nobody",
        "&".join(f"with=user{number}@site-b.test" for number in range(17)),
        f"with={BOB}&history=-1",
        f"with={BOB}&history=1001",
        f"with={BOB}&history=many",
        f"with={BOB}&after=x",
        f"with={BOB}&after=-",
        f"with={BOB}&after=-,-,-",
    ],
)
def test_a_stream_that_cannot_be_is_refused_with_a_reason(tmp_path, query):
    async def story():
        async with room(tmp_path) as chat:
            status, text = await chat.get(f"/chat/stream?me={ALICE}&token={TOKEN}&{query}")
            assert status == 400
            assert "\n" not in json.loads(text)["error"]

    run(story())


def test_a_stream_begins_with_the_last_messages_and_goes_on_after_a_place(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            written = [f"{number}" for number in range(120)]
            for number, text in enumerate(written):
                await chat.send(*((ALICE, BOB) if number % 2 else (BOB, ALICE)), text)
            for history, shown in [(None, 50), (3, 3), (0, 0), (1_000, 1_000)]:
                more = {} if history is None else {"history": history}
                async with chat.listen(ALICE, BOB, **more) as alice:
                    expected = written[len(written) - min(2 * shown, len(written)) :]
                    await until(lambda a=alice, e=expected: len(a.texts) >= len(e), "the history")
                    for sender, recipient in ((BOB, ALICE), (ALICE, BOB)):
                        written.append(f"{sender} to somebody who has seen {history}")
                        await chat.send(sender, recipient, written[-1])
                    await until(lambda a=alice: written[-1] in a.texts, "the last")
                    assert alice.texts == [*expected, *written[-2:]]
                    last = alice.last_id
            await chat.send(BOB, ALICE, "while nobody listened")
            await chat.send(ALICE, BOB, "nor now")
            for how in ({"after": last}, {"headers": {"Last-Event-ID": last}}):
                async with chat.listen(ALICE, BOB, **how) as alice:
                    await until(lambda alice=alice: len(alice.texts) >= 2, "the rest")
                    assert alice.texts == ["while nobody listened", "nor now"]

    run(story())


def test_what_left_the_history_is_a_gap_and_another_numbering_a_reset(tmp_path):
    async def story():
        async with room(tmp_path, settings={"history": 5}) as chat:
            async with chat.listen(BOB, ALICE) as bob:
                await chat.send(ALICE, BOB, "first")
                await until(lambda: bob.texts, "the first")
            for number in range(9):
                await chat.send(ALICE, BOB, f"{number}")
            async with chat.listen(BOB, ALICE, after=bob.last_id) as again:
                await until(lambda: again.texts[-1:] == ["8"], "the rest")
                assert again.texts == [f"{number}" for number in range(4, 9)]
                (gap,) = again.of("gap")
                assert (gap["from"], gap["to"], gap["after"] in bob.last_id) == (ALICE, BOB, True)
            other = f"-,{'f' * 32}.1.7"
            async with chat.listen(BOB, ALICE, after=other) as lost:
                await until(lambda: lost.texts, "the latest")
                (reset,) = lost.of("reset")
                assert reset["after"] == f"{'f' * 32}.1.7"
                assert reset["resumes"] == lost.of("message")[0]["position"]
                await until(lambda: lost.texts[-1] == "8", "the rest")
                assert lost.texts == [f"{number}" for number in range(4, 9)]
            async with chat.listen(BOB, ALICE, after=other, history="2") as short:
                await until(lambda: short.texts[-1:] == ["8"], "the last two")
                assert short.texts == ["7", "8"]

    run(story())


def test_who_comes_from_a_psph_that_is_gone_has_all_that_the_next_has_taken(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            gone = f"-,{'f' * 32}.1.7"
            async with chat.listen(BOB, ALICE, after=gone) as early:
                await chat.send(ALICE, BOB, "first")
                await chat.send(ALICE, BOB, "second")
                await until(lambda: len(early.texts) == 2, "both")
            async with chat.listen(BOB, ALICE, after=gone) as late:
                await until(lambda: len(late.texts) == 2, "both, once more")
            for bob in (early, late):
                assert bob.texts == ["first", "second"]
                assert not bob.of("reset")
                assert not bob.of("gap")

    run(story())


def test_one_stream_carries_several_conversations(tmp_path):
    carol = "carol@site-a.test"

    async def story():
        async with room(tmp_path) as chat, chat.listen(ALICE, BOB, carol) as alice:
            await chat.send(BOB, ALICE, "from bob")
            await chat.send(carol, ALICE, "from carol")
            await chat.send(carol, BOB, "not for alice")
            await chat.send(ALICE, carol, "to carol")
            await until(lambda: len(alice.texts) == 3, "all of them")
            assert alice.texts == ["from bob", "from carol", "to carol"]
            places = alice.last_id.split(",")
            assert [each == "-" for each in places] == [True, False, False, False]
            async with chat.listen(ALICE, BOB, carol, after=alice.last_id) as again:
                await chat.send(BOB, ALICE, "next")
                await until(lambda: again.texts, "the next")
                assert again.texts == ["next"]

    run(story())


def test_somebody_is_here_while_a_stream_is_open_and_away_soon_after(tmp_path):
    async def story():
        async with room(tmp_path, presence_s=4) as chat, chat.listen(BOB, ALICE) as bob:
            assert bob.of("presence") == [{"jid": ALICE, "state": "away", "since": None}]
            async with chat.listen(ALICE, BOB) as alice:
                await until(lambda: alice.states(BOB)[-1] == "here", "bob's being here")
                await until(lambda: bob.states(ALICE)[-1] == "here", "alice's coming")
                since = bob.of("presence")[-1]["since"]
                record = await chat.hub.store.topic(identify(jid_topic(ALICE)))
                said = await chat.hub.store.latest(record.id)

                async def is_said_again():
                    return (await chat.hub.store.latest(record.id)).position > said.position.next()

                while not await is_said_again():
                    await asyncio.sleep(0.05)
                assert bob.states(ALICE) == ["away", "here"]
                assert bob.of("presence")[-1]["since"] == since
            await until(lambda: bob.states(ALICE)[-1] == "away", "alice's leaving")
            assert len(await chat.hub.store.versions(record.id, 100)) <= 8

    run(story())


def test_somebody_who_is_not_heard_of_any_more_is_away(tmp_path):
    async def story():
        async with room(tmp_path) as chat, chat.listen(BOB, ALICE) as bob:
            # As a PSPH that died just then: nobody says that she left.
            word = presence.write(Presence(ALICE, True, 3))
            await chat.hub.publish(presence_of(ALICE), CONTENT_TYPE, word, superseding=True)
            await until(lambda: len(bob.states(ALICE)) >= 3, "the end of her time")
            assert bob.states(ALICE) == ["away", "here", "away"]

    run(story())


def test_whoever_comes_later_is_told_how_it_stands_and_not_how_it_was(tmp_path):
    async def story():
        async with room(tmp_path) as chat:

            async def say(ttl):
                word = presence.write(Presence(ALICE, True, ttl))
                await chat.hub.publish(presence_of(ALICE), CONTENT_TYPE, word, superseding=True)

            await say(0.6)
            await asyncio.sleep(1)  # when that has ended
            await say(60)
            record = await chat.hub.store.topic(presence_of(ALICE))
            came = await chat.hub.store.latest(record.id)
            await asyncio.sleep(0.05)
            await say(60)
            await chat.send(ALICE, BOB, "after what is told of her")
            async with chat.listen(BOB, ALICE) as bob:
                await until(lambda: bob.texts, "the message")
                await chat.send(ALICE, BOB, "and later")
                await until(lambda: len(bob.texts) == 2, "another")
                assert bob.states(ALICE) == ["here"]
                since = datetime.fromisoformat(bob.of("presence")[0]["since"]).timestamp()
                assert abs(since - came.recorded_at) < 0.002

    run(story())


def test_what_is_no_message_of_whom_its_topic_says_is_left_out_and_counted(tmp_path):
    async def story():
        async with room(tmp_path) as chat, chat.listen(BOB, ALICE) as bob:
            await chat.hub.publish(
                identify(TOPIC), CONTENT_TYPE, messages.write(Message("carol@site-a.test", "I"))
            )
            await chat.hub.publish(identify(TOPIC), CONTENT_TYPE, b"<rss>")
            other = presence.write(Presence(BOB, True, 60))
            await chat.hub.publish(presence_of(ALICE), CONTENT_TYPE, other, superseding=True)
            await chat.send(ALICE, BOB, "true")
            await until(lambda: bob.texts, "the true one")
            assert bob.texts == ["true"]
            await until(lambda: chat.hub.counters["chat_refused"] == 3, "the count")
            assert bob.states(ALICE) == ["away"]

    run(story())


def test_a_message_that_two_psphs_of_a_domain_have_taken_is_shown_once(tmp_path):
    async def story():
        async with room(tmp_path) as chat, chat.listen(BOB, ALICE) as bob:
            sent = await chat.send(ALICE, BOB, "once")
            elsewhere = Position(PublisherId(b"p" * 16), 1, 1)
            taken = await chat.hub.accept(
                identify(TOPIC), CONTENT_TYPE, messages.write(Message(ALICE, "once")),
                position=elsewhere, trace_id=sent["id"], published=True,
            )  # fmt: skip
            assert taken is not None
            await chat.send(ALICE, BOB, "next")
            await until(lambda: "next" in bob.texts, "the next")
            assert bob.texts == ["once", "next"]

    run(story())


def test_a_message_that_came_from_another_psph_of_the_domain_is_taken_here_too(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            identity, elsewhere = new_id(), Position(PublisherId(b"p" * 16), 1, 1)
            await chat.hub.accept(
                identify(TOPIC), CONTENT_TYPE, messages.write(Message(ALICE, "once")),
                position=elsewhere, trace_id=identity, published=True,
            )  # fmt: skip
            here = [await chat.send(ALICE, BOB, "once", identity) for _ in range(3)]
            assert len({each["position"] for each in here}) == 1
            assert here[0]["position"] != str(elsewhere)
            other = message(text="another", id=identity)
            assert (await chat.post(other, token_of(KEY, ALICE)))[0] == 409
            async with chat.listen(BOB, ALICE) as bob:
                await chat.send(ALICE, BOB, "next")
                await until(lambda: "next" in bob.texts, "the next")
                assert bob.texts == ["once", "next"]

    run(story())


def test_one_user_has_so_many_streams(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            opened = []
            try:
                path = f"{chat.url}/chat/stream?me={ALICE}&with={BOB}&token={TOKEN}"
                for _ in range(32):
                    opened.append(await chat.client.get(path))
                    assert opened[-1].status == 200
                async with chat.client.get(path) as answer:
                    assert answer.status == 429
                    assert "close some" in (await answer.json())["error"]
            finally:
                for each in opened:
                    each.close()

    run(story())


def test_tokens_are_given_to_whom_the_configuration_trusts_only(tmp_path):
    async def story():
        async with room(tmp_path / "a") as chat:
            status, text = await chat.get(f"/chat/token?me={ALICE}")
            assert (status, "127.0.0.1 is not in chat.trust" in text) == (403, True)
        async with room(tmp_path / "b", trust=["127.0.0.0/8"]) as chat:
            status, text = await chat.get(f"/chat/token?me={ALICE}")
            assert (status, json.loads(text)) == (200, {"me": ALICE, "token": TOKEN})
            assert (await chat.get(f"/chat/token?me={EVE}"))[0] == 403
            assert (await chat.get("/chat/token"))[0] == 400
            for headers in ({"X-Forwarded-For": "127.0.0.1"}, {"Sec-Fetch-Site": "cross-site"}):
                assert (await chat.get(f"/chat/token?me={ALICE}", headers=headers))[0] == 403

    for name in "ab":
        (tmp_path / name).mkdir()
    run(story())


def test_strangers_cannot_read_or_write_conversations_as_topics(tmp_path):
    async def story():
        async with room(tmp_path) as chat:
            await chat.send(ALICE, BOB, "between us")
            form = {"hub.topic": TOPIC, "hub.callback": "http://127.0.0.1:9/"}
            for mode in ("subscribe", "unsubscribe"):
                async with chat.client.post(
                    f"{chat.url}/hub", data={"hub.mode": mode, **form}
                ) as answer:
                    assert answer.status == 400
            async with chat.client.post(
                f"{chat.url}/hub", data={"hub.mode": "publish", "hub.url": TOPIC}
            ) as answer:
                assert answer.status == 400
            async with chat.client.post(
                f"{chat.url}/publish", params={"topic": TOPIC}, data=b"x"
            ) as answer:
                assert answer.status == 400
            record = await chat.hub.store.topic(identify(TOPIC))
            for path, params, status in [
                ("/stream", {"topic": TOPIC}, 400),
                (f"/t/{TOPIC}", {}, 400),
                ("/find", {"url": TOPIC}, 400),
                ("/topics", {"url": TOPIC}, 400),
                (f"/topics/{record.id}", {}, 404),
                ("/topics", {"format": "json"}, 200),
            ]:
                found, text = await chat.get(path, params=params)
                assert found == status, path
                assert "between us" not in text
                assert path == "/stream" or "alice" not in text or status == 400, path

    run(story())


def test_a_conversation_that_is_watched_is_not_fetched(tmp_path):
    async def story():
        async with room(tmp_path, settings={"follow_after": 0.2}) as chat:
            async with chat.listen(ALICE, BOB) as alice:
                await chat.send(BOB, ALICE, "hello")
                await until(lambda: alice.texts, "the message")
                record = await chat.hub.store.topic(identify(TOPIC))

                async def is_left_alone():
                    found = await chat.hub.store.following(record.id)
                    return found is not None and str(found.way) == "carried"

                while not await is_left_alone():
                    await asyncio.sleep(0.02)
            assert not chat.hub.counters["fetches"]
            assert not chat.hub.counters["fetch_failures"]

    run(story())
