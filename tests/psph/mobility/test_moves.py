"""Moves between hubs over real sockets, and the hard cases among them."""

from __future__ import annotations

import asyncio
import shutil

import aiohttp
import pytest

from mobility import ClientSettings, Gap, Quota, Service, Stage, Superseded
from mobility.messages import Batch, Fetch, Heard, MoveIn, Refused, State, Welcome, encode, read
from psirp_sim.runtime.durations import MILLISECOND
from tests.psph.mobility.clients import Plain, Reader
from tests.psph.mobility.places import TOKEN, TOPIC, Relay, give, places, until
from traces import Stage as TraceStage


def run(main):
    return asyncio.run(main())


def test_a_client_collects_at_one_hub_what_only_the_other_has(tmp_path):
    """The history of the second begins too late: what lies between is in the first one's buffer."""

    async def main():
        async with places(tmp_path, 2, buffer=True) as (a, b), Reader() as reader:
            await give((a, b), 1)
            await reader.move(a.url)
            await reader.live()
            await give((a, b), 2, 3)
            await until(lambda: reader.seen == [2, 3])
            assert await reader.move_out(30)
            assert len(a.stays("away")) == 1
            await give((a,), 4, 5, 6, 7)
            await give((b,), 7)
            # What was consumed last may not have been durable yet when the client left.
            await until(lambda: len(a.stays("away")[0].buffer) >= 4)
            await reader.move(b.url)
            await reader.live()
            await give((a, b), 8)
            await until(lambda: reader.seen[-1] == 8)
            assert reader.seen == [2, 3, 4, 5, 6, 7, 8]
            assert not reader.gaps
            assert reader.notices[-1].collected >= 3
            assert b.proxy.counters()["relayed"] > 0
            await until(lambda: not a.core.handlers)

    run(main)


def test_a_buffer_outlives_the_process_that_keeps_it(tmp_path):
    async def main():
        async with places(tmp_path, 2, buffer=True) as (a, b), Reader() as reader:
            await give((a, b), 1)
            await reader.move(a.url)
            await reader.live()
            await reader.move_out(30)
            await give((a,), 2, 3)
            await until(lambda: [n.version for n in a.stays("away")[0].buffer.seen(TOPIC)] == [3])
            await give((b,), 4)
            async with a.stopped():
                await reader.move(b.url)
                await until(lambda: b.proxy.counters().get("peers_failed", 0) > 0)
                assert reader.seen == []  # what is missing may still come
            await until(lambda: reader.seen == [2, 3, 4])
            assert not reader.gaps

    run(main)


def test_what_nobody_has_is_a_gap(tmp_path):
    async def main():
        settings = ClientSettings(linger=300 * MILLISECOND)
        async with places(tmp_path, 2) as (a, b), Reader(settings=settings) as reader:
            await give((a, b), 1)
            await reader.move(a.url)
            await reader.live()
            reader.vanish()
            await give((b,), 5)
            await reader.move(b.url)
            await until(lambda: reader.seen == [5])
            (gap,) = reader.gaps
            assert isinstance(gap, Gap)
            assert (gap.first, gap.last) == (2, 4)

    run(main)


def test_a_client_that_falls_silent_is_taken_for_gone(tmp_path):
    """No FIN, no reset: its connections just carry nothing more."""

    async def main():
        settings = ClientSettings(alive=150 * MILLISECOND, service=Service(topic=Quota(5_000)))
        async with (
            places(tmp_path, 2) as (a, b),
            Relay(a.port) as relay,
            Reader(settings=settings) as reader,
        ):
            await give((a, b), 1)
            await reader.move(relay.url)
            await reader.live()
            await give((a, b), 2)
            await until(lambda: reader.seen == [2])
            relay.fall_silent()
            await until(lambda: len(a.stays("away")) == 1)
            # On a slow machine it may have been taken for gone before, and come back.
            assert a.core.counters["vanished"] >= 1
            await give((a,), 3, 4)
            await until(lambda: len(a.stays("away")[0].buffer) >= 2)
            await give((b,), 4)
            await reader.move(b.url)
            await reader.live()
            assert reader.seen == [2, 3, 4]
            assert not reader.gaps

    run(main)


def test_of_two_with_one_secret_the_later_one_wins_and_the_other_is_told(tmp_path):
    async def main():
        async with places(tmp_path, 2) as (a, b):
            await give((a, b), 1)
            async with Reader(state=tmp_path / "state") as first:
                await first.move(a.url)
                await first.live()
            shutil.copy(tmp_path / "state", tmp_path / "copy")
            async with (
                Reader(state=tmp_path / "state") as first,
                Reader(state=tmp_path / "copy") as second,
            ):
                await first.move(a.url)
                await first.live()
                await second.move(b.url)  # the same epoch: by the nonce, one of them is higher
                await second.move(b.url)  # and now certainly this one
                await until(lambda: first.stage is Stage.SUPERSEDED)
                assert isinstance(first.notices[-1], Superseded)
                await second.live()
                await give((a, b), 2)
                await until(lambda: second.seen == [2])
                assert first.seen == []

    run(main)


def test_a_client_goes_on_after_its_program_was_restarted(tmp_path):
    async def main():
        async with places(tmp_path, 2) as (a, b):
            await give((a, b), 1)
            async with Reader(state=tmp_path / "state") as reader:
                await reader.move(a.url)
                await reader.live()
                await give((a, b), 2)
                await until(lambda: reader.seen == [2])
            await give((a, b), 3, 4)
            async with Reader(state=tmp_path / "state") as again:
                assert again.client.id == reader.client.id
                await again.move(b.url)
                await again.live()
                assert again.seen == [3, 4]

    run(main)


def test_who_does_not_know_the_secret_collects_nothing(tmp_path):
    async def main():
        secret, wrong = bytes(32), bytes(31) + b"\1"
        async with (
            places(tmp_path, 2, buffer=True) as (a, b),
            aiohttp.ClientSession() as session,
            Plain(session, a.url) as here,
            Plain(session, b.url, "x" * 22) as elsewhere,
        ):
            await give((a,), 1)
            who = {"epoch": 1, "nonce": 1}
            places_ = {TOPIC: (f"{'70' * 16}.1.1",)}
            welcome = await here.ask(MoveIn(secret=secret, **who, call=1, topics=places_))
            assert isinstance(welcome, Welcome)
            a.core.connection_lost(a.stays("here")[0].record.client, a.stays("here")[0].peer)
            await give((a,), 2)
            await until(lambda: any(len(each.buffer) for each in a.stays("away")))

            def fetch(key, call):
                return Fetch(secret=key, epoch=9, nonce=1, call=call, proxy=a.url, stay=1)

            answer = await elsewhere.ask(fetch(wrong, 5))
            assert isinstance(answer, Batch)
            assert answer.state is State.UNKNOWN
            assert not answer.items
            answer = await elsewhere.ask(fetch(secret, 6))
            assert answer.state is State.KEPT
            assert [item.body for item in answer.items][-1] == b"2"

    run(main)


def test_hand_offs_are_traced(tmp_path):
    class Sink(list):
        emit = list.append

    async def main():
        events = Sink()
        async with places(tmp_path, 2, events) as (a, b), Reader() as reader:
            await give((a, b), 1)
            await reader.move(a.url)
            await reader.live()
            await reader.move_out(30)
            await reader.move(b.url)
            await reader.live()
            await until(lambda: len(events) >= 5)
            stages = [each.stage for each in events if each.subscriber == reader.client.id]
            assert stages == [
                TraceStage.MOVE_IN_BEGIN, TraceStage.MOVE_IN_END, TraceStage.MOVE_OUT,
                TraceStage.MOVE_IN_BEGIN, TraceStage.MOVE_IN_END,
            ]  # fmt: skip

    run(main)


def test_a_moving_publisher_keeps_what_it_publishes_and_sends_it_once(tmp_path):
    """One hub answers, the answer is lost, and the client goes on through a second way to it."""

    async def main():
        async with (
            places(tmp_path, 1) as (a,),
            Relay(a.port) as relay,
            Reader(token=TOKEN) as client,
        ):
            for number in range(3):  # nowhere yet
                client.publish(TOPIC, b"%d" % number, "text/plain")
            await until(lambda: client.unsent == 3)
            await client.move(relay.url)
            await until(lambda: client.unsent == 0)
            relay.keep_answers()
            client.publish(TOPIC, b"3", "text/plain")
            await until(lambda: "3" in a.published)  # taken, and the client does not know
            assert client.unsent == 1
            for number in range(4, 8):
                client.publish(TOPIC, b"%d" % number, "text/plain")
            await client.move(a.url)
            await until(lambda: client.unsent == 0)
            assert a.published == [str(number) for number in range(8)]

    run(main)


def test_only_who_has_the_token_publishes(tmp_path):
    async def main():
        async with places(tmp_path, 1) as (a,), aiohttp.ClientSession() as session:

            async def post(**headers):
                async with session.post(
                    f"{a.url}/mobility/publish", params={"topic": TOPIC}, data=b"x", headers=headers
                ) as answer:
                    return answer.status

            position = f"{'70' * 16}.1.1"
            right = {"Authorization": f"Bearer {TOKEN}", "Psph-Publication": position}
            assert await post(**{"Psph-Publication": position}) == 401
            assert await post(**{**right, "Psph-Publication": "1"}) == 400
            assert await post(**right) == 201
            assert await post(**right) == 200
            assert a.published == ["x"]

    run(main)


def test_pages_of_any_site_may_publish_with_a_token(tmp_path):
    """Browsers ask first; then the page may read the answer, also when it is a refusal."""

    async def main():
        async with places(tmp_path, 1) as (a,), aiohttp.ClientSession() as session:
            url, anybody = f"{a.url}/mobility/publish", ("Access-Control-Allow-Origin", "*")
            async with session.options(url) as answer:
                assert answer.status == 204
                assert anybody in answer.headers.items()
                allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
                assert set(allowed) == {"Authorization", "Content-Type", "Psph-Publication"}
            position = {"Psph-Publication": f"{'70' * 16}.1.1"}
            for topic, headers, status in (
                ("no topic", {}, 400), (TOPIC, {}, 400), (TOPIC, position, 401),
            ):  # fmt: skip
                async with session.post(url, params={"topic": topic}, headers=headers) as answer:
                    assert answer.status == status
                    assert anybody in answer.headers.items()

    run(main)


# Hostile input


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\x80", b'{"type": "alive"}', b"[" * 5_000,
        encode(Heard(call=1)), encode(Heard(call=1), json=True),
        encode(MoveIn(secret=bytes(32), epoch=1, nonce=1, call=1, topics={}))[:-3],
        b'{"type": "move_in", "secret": "AAAA", "epoch": 1, "nonce": 1, "call": 1, "topics": {}}',
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_with_a_reason(tmp_path, body):
    async def main():
        async with places(tmp_path, 1) as (a,), aiohttp.ClientSession() as session:
            for path in ("messages", "relay"):
                async with session.post(
                    f"{a.url}/mobility/{path}", params={"session": "w" * 22}, data=body
                ) as answer:
                    assert answer.status == 400
                    assert len((await answer.text()).splitlines()) == 1
            assert not a.core.handlers

    run(main)


def test_limits_hold(tmp_path):
    async def main():
        async with (
            places(tmp_path, 1, clients=2, max_message=2_048, messages_per_s=1.0) as (a,),
            aiohttp.ClientSession() as session,
        ):

            async def post(word, body=b"x"):
                url = f"{a.url}/mobility/messages"
                async with session.post(url, params={"session": word}, data=body) as answer:
                    return answer.status

            assert await post("short") == 400
            assert await post("a" * 22, bytes(3_000)) == 413
            assert await post("b" * 22) == 400
            assert await post("c" * 22) == 503  # the third client
            statuses = [await post("b" * 22) for _ in range(15)]
            assert statuses[-1] == 429
            await until(lambda: len(a.proxy.sessions) == 0)  # whoever does not listen is forgotten

    run(main)


@pytest.mark.parametrize(
    "name",
    ["http://169.254.169.254", "http://127.0.0.1:1/x?y", "file:///etc/passwd", "http://[::1]:80"],
)
def test_a_client_cannot_send_a_proxy_to_an_address_that_is_no_proxys(tmp_path, name):
    async def main():
        async with (
            places(tmp_path, 1) as (a,),
            aiohttp.ClientSession() as session,
            Plain(session, a.url) as here,
        ):
            question = Fetch(secret=bytes(32), epoch=1, nonce=1, call=1, proxy=name, stay=1)
            answer = await here.ask(question)
            assert isinstance(answer, Refused)
            assert answer.code == "forbidden"
            # Nor is a question passed on that another proxy has passed on.
            async with session.post(f"{a.url}/mobility/relay", data=encode(question)) as reply:
                refused = read(await reply.read())
            assert refused.code == "forbidden"
            assert not a.proxy.peers.counters.total()

    run(main)
