"""Proxies of hubs that prepare what clients need before they come, over real sockets."""

from __future__ import annotations

from contextlib import AsyncExitStack

import aiohttp
import pytest

from identifiers import Position
from mobility.ahead import words
from mobility.messages import MoveIn, Release, Released, Welcome
from psph.mobility.hub_port import NAME
from psph.mobility.pressure import Pressure
from psph.mobility.routes import LARGEST_WORD
from tests.psph.mobility.clients import Plain, Reader
from tests.psph.mobility.places import PUBLISHER, TOPIC, give, places, until
from tests.psph.mobility.test_moves import run

TOKEN = bytes(words.PASS_BYTES)


def ahead(place):
    return place.core.ahead


def status(place):
    return place.proxy.status()["prepare"]


def followed_by_proxy(place):
    """Topics that the hub follows for the sake of its proxy."""
    streams = place.hub.streams._by_topic
    return [topic for topic in streams if any(each.name == NAME for each in streams[topic])]


async def acquaint(reader, a, b):
    """The client goes from one to the other and back, so that they are neighbours."""
    for place in (a, b, a):
        if reader.stage == "live":
            assert await reader.move_out(30)
        await reader.move(place.url)
        await reader.live()
    for place, other in ((a, b), (b, a)):
        await until(lambda p=place, o=other: o.url in ahead(p).neighbours.known)
    await until(lambda: ahead(b).contexts.kept)


def test_a_client_is_expected_where_it_has_been_before(tmp_path):
    """And nothing is left of it anywhere once it is gone for good."""

    async def main():
        async with places(tmp_path, 2, prepare_lapse_s=2.0) as (a, b):
            async with Reader() as reader:
                await give((a, b), 1)
                await acquaint(reader, a, b)
                assert status(b)["contexts"] == {"passive": 1, "active": 0}
                await reader.move_out(30)
                await until(lambda: status(b)["contexts"] == {"passive": 0, "active": 1})
                # The topic is left to history: the hub follows it already, and buffers nothing.
                await until(lambda: followed_by_proxy(b))
                assert status(b)["topics"] == {"buffered": 0, "warm": 1}
                prepared = ahead(b).counters["prepared"]
                await give((a, b), 2)
                await reader.move(b.url)
                await reader.live()
                assert reader.seen == [2]
                assert ahead(b).counters["prepared"] == prepared + 1
                assert status(b)["share"] > 0
                await until(lambda: status(b)["topics"]["warm"] == 0)
                await until(lambda: not followed_by_proxy(b))
                edges = status(a)["neighbours"]
                assert [(each["proxy"], each["came"]) for each in edges] == [(b.url, 1)]
                await until(lambda: status(a)["neighbours"][0]["went"] == 2)
                await until(lambda: status(a)["contexts"]["passive"])
                reader._host.call(reader.client.unsubscribe, TOPIC)
                await until(lambda: not status(a)["contexts"]["passive"])
            for place in (a, b):
                await until(lambda p=place: not ahead(p).contexts.kept)
                shown = status(place)
                assert shown["context_bytes"] == shown["prepared_clients"] == 0
                await until(lambda p=place: status(p)["untold"] == 0)

    run(main)


def test_what_waits_has_come_before_the_client_and_outlives_the_proxy_it_left(tmp_path):
    """The hub it comes to keeps two versions: the rest is only in its context."""

    async def main():
        async with places(tmp_path, 2, history=2, buffer=True) as (a, b), Reader() as reader:
            await give((a, b), 1)
            await acquaint(reader, a, b)
            await reader.move_out(30)
            await until(lambda: status(b)["contexts"]["active"])
            await give((a, b), 2, 3, 4, 5, 6)
            (context,) = ahead(b).contexts.kept.values()
            await until(lambda: len(context.waiting.buffer) >= 5)
            async with b.stopped():
                pass
            (context,) = ahead(b).contexts.kept.values()
            assert len(context.waiting.buffer) >= 5  # it is durable
            async with a.stopped():
                await reader.move(b.url)
                await reader.live()
                assert reader.seen == [2, 3, 4, 5, 6]
                assert ahead(b).counters["bytes_adopted"] >= 5
                assert reader.notices[-1].collected >= 3
            assert not reader.gaps

    run(main)


def test_pages_that_release_without_collecting_teach_neighbours_too(tmp_path):
    async def main():
        who = {"secret": bytes(32), "nonce": 1}
        at = {TOPIC: (str(Position(PUBLISHER, 1, 1)),)}
        async with (
            places(tmp_path, 2) as (a, b),
            aiohttp.ClientSession() as session,
            Plain(session, a.url) as here,
            Plain(session, b.url, "x" * 22) as there,
        ):
            await give((a, b), 1)
            welcome = await here.ask(MoveIn(**who, epoch=1, call=1, topics=at))
            assert isinstance(welcome, Welcome)
            assert isinstance(await there.ask(MoveIn(**who, epoch=2, call=1, topics=at)), Welcome)
            assert not ahead(b).neighbours.known
            for kept in (True, False):
                released = await there.ask(Release(**who, epoch=2, call=2, proxy=a.url, stay=1))
                assert released == Released(call=2, kept=kept)
            for place, other in ((a, b), (b, a)):
                await until(lambda p=place, o=other: [*ahead(p).neighbours.known] == [o.url])

    run(main)


def test_a_proxy_under_pressure_refuses_and_clients_do_not_notice(tmp_path):
    async def main():
        async with (
            places(tmp_path, 2, clients=3, prepare_lapse_s=0.6) as (a, b),
            Reader() as reader,
            aiohttp.ClientSession() as session,
        ):
            await give((a, b), 1)
            await acquaint(reader, a, b)
            await until(lambda: len(b.proxy.sessions) == 0)
            async with AsyncExitStack() as crowd:
                for word in "xyz":
                    await crowd.enter_async_context(Plain(session, b.url, word * 22))
                await until(lambda: ahead(b).contexts.refusing)
                assert status(b)["pressed"]
                assert status(b)["used"]["sessions"] == 1.0
                await reader.move_out(30)
                await until(lambda: ahead(a).counters["contexts_refused"])
                assert ahead(b).counters["refusals"]
                assert not status(b)["contexts"]["active"]
                b.proxy.sessions.close()
            await until(lambda: not ahead(b).contexts.refusing)
            # It is asked again, and now it has time.
            await until(lambda: status(b)["contexts"]["active"])
            await give((a, b), 2)
            await reader.move(b.url)
            await reader.live()
            assert reader.seen == [2]

    run(main)


def test_a_proxy_that_prepares_nothing_says_so_and_is_left_alone(tmp_path):
    async def main():
        async with (
            places(tmp_path, 2, prepare=False) as (a, b),
            Reader() as reader,
            aiohttp.ClientSession() as session,
        ):
            await give((a, b), 1)
            for place in (a, b):
                await reader.move(place.url)
                await reader.live()
            assert not ahead(b).neighbours.known
            assert not any(ahead(a).counters.values())
            status, text = await tell(session, a, words.Greet(call=1, proxy=b.url, challenge=TOKEN))
            assert (status, text) == (403, b"nothing is prepared here\n")

    run(main)


# Strangers


async def tell(session, place, word):
    content = word if isinstance(word, bytes) else words.encode(word)
    async with session.post(f"{place.url}/mobility/relay", data=content) as answer:
        return answer.status, await answer.read()


def a_context(number=1):
    return words.Copy(client=f"{number:064x}", epoch=1, nonce=1, topics={TOPIC: ()}, active=True)


def test_a_pass_goes_to_the_proxy_of_that_name_and_to_nobody_else(tmp_path, monkeypatch):
    # However long the machine takes for twenty greetings.
    monkeypatch.setattr("psph.mobility.peers.BETWEEN_PASSES", 3_600.0)

    async def main():
        async with places(tmp_path, 2) as (a, b), aiohttp.ClientSession() as session:
            greeting = words.Greet(call=1, proxy=b.url, challenge=TOKEN)
            for _ in range(20):
                status_, answer = await tell(session, a, greeting)
                assert (status_, words.read(answer)) == (200, words.Noted(call=1))
            # Once, not twenty times; and the other one did not ask for it.
            await until(lambda: a.proxy.peers.counters["answered"] == 1)
            assert a.proxy.peers.counters["crowded"] == 19
            assert ahead(b).conversation.passes.of(a.url) is None
            for name in ("http://127.0.0.1:1", "http://169.254.169.254", a.url):
                greeting = words.Greet(call=2, proxy=name, challenge=TOKEN)
                _, answer = await tell(session, a, greeting)
                assert words.read(answer) == words.Rejected(call=2)
            assert a.proxy.peers.counters.total() == 20

    run(main)


def test_who_has_no_pass_changes_nothing(tmp_path):
    async def main():
        async with places(tmp_path, 2) as (a, b), aiohttp.ClientSession() as session:
            word = words.Contexts(call=7, proxy=b.url, token=TOKEN, changes=(a_context(),))
            _, answer = await tell(session, a, word)
            assert words.read(answer) == words.Rejected(call=7)
            assert not ahead(a).contexts.kept
            assert ahead(a).counters["wrong_passes"] == 1
            # Clients do not speak so at all.
            url = f"{a.url}/mobility/messages"
            async with session.post(
                url, params={"session": "w" * 22}, data=words.encode(word)
            ) as refusal:
                assert refusal.status == 400

    run(main)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (words.encode(words.Greet(call=1, proxy="x", challenge=TOKEN))[:-3], 400),
        (words.encode(words.Greet(call=1, proxy="x" * 300, challenge=TOKEN)), 400),
        (words.encode(words.Noted(call=1)), 400),
        (
            words.encode(
                words.Contexts(
                    call=1, proxy="x", token=TOKEN,
                    changes=tuple(map(a_context, range(LARGEST_WORD // 100))),
                )
            ),
            413,
        ),
    ],
    ids=["cut off", "too long a name", "an answer", "too large"],
)  # fmt: skip
def test_what_is_no_word_is_refused_with_a_reason(tmp_path, body, expected):
    async def main():
        async with places(tmp_path, 1) as (a,), aiohttp.ClientSession() as session:
            status_, text = await tell(session, a, body)
            assert status_ == expected
            assert len(text.splitlines()) == 1
            assert not ahead(a).counters["words_sent"]

    run(main)


async def pass_of(place, name):
    return ahead(place).conversation.passes.give(name)


def test_a_proxy_with_a_pass_gets_no_more_than_its_share(tmp_path):
    """Whoever runs a zone can be a proxy."""

    async def main():
        async with (
            places(tmp_path, 2, prepare_contexts=40, prepare_topics=4) as (a, b),
            aiohttp.ClientSession() as session,
        ):
            token = await pass_of(a, b.url)

            async def prepare(*copies):
                word = words.Contexts(call=1, proxy=b.url, token=token, changes=copies)
                return words.read((await tell(session, a, word))[1])

            held = await prepare(*map(a_context, range(20)))
            assert len(held.refused) == 10
            many = words.Copy(
                client="f" * 64, epoch=1, nonce=1, active=True,
                topics={f"{TOPIC}/{n}": () for n in range(50)},
            )  # fmt: skip
            assert (await prepare(many)).refused == ("f" * 64,)
            few = words.Copy(
                client=f"{1:064x}", epoch=2, nonce=1, active=True,
                topics={f"{TOPIC}/{n}": () for n in range(4)},
            )  # fmt: skip
            assert not (await prepare(few)).refused
            assert len(a.hub.streams) <= 5
            assert status(a)["topics"] == {"buffered": 0, "warm": 4}

    run(main)


def test_pressure_ends_only_well_below_where_it_began():
    used = {"stays": 0, "streams": 0}
    pressure = Pressure(lambda: {name: (count, 100) for name, count in used.items()})
    for stays, streams, high in ((89, 0, False), (0, 90, True), (85, 0, True), (79, 79, False)):
        used.update(stays=stays, streams=streams)
        before = pressure.high
        assert pressure.look() is (before is not high)
        assert pressure.high is high
