"""The client for applications, over a fabric on real sockets of the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identifiers import InvalidId, Position, PublisherId, identify
from psirp_sim.node import FabricNode
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.events import Gap, Reset, Update
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime import updates as updates_module
from psirp_sim.runtime.client import FabricClient
from psirp_sim.runtime.client_errors import (
    ClientClosed,
    Congested,
    FabricError,
    NotAnItem,
    NotAttached,
    NotDrained,
    NothingPublished,
    NotRegistered,
    Refused,
)
from psirp_sim.runtime.loopback import LoopbackFabric
from psirp_sim.runtime.outbox import Outbox
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.rendezvous import Access, Code, Open
from psirp_sim.wire.sealing import FabricKeys

SID, RID, OTHER = b"s" * 32, b"r" * 32, b"o" * 32
PATIENCE = 120.0
"""Seconds until a test gives up on what comes; nothing is measured."""
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
PUBLIC = KEY.public_key().public_bytes_raw()
ALONE = FabricSettings(keys=FabricKeys("alone"), link_seed=b"alone")


def within_a_fabric(body, clients=(), **options):
    """Run the body with the fabric, and clients of these names."""

    async def main():
        async with asyncio.timeout(150), LoopbackFabric(**options) as fabric:
            await body(fabric, *await asyncio.gather(*map(fabric.client, clients)))

    asyncio.run(main())


def contents(events):
    return [event.content for event in events]


async def take(updates, count):
    async with asyncio.timeout(PATIENCE):
        return [await anext(updates) for _ in range(count)]


async def introduce(publisher, updates):
    """From now on the publisher knows of the subscriber."""
    await publisher.publish(SID, RID, b"hello")
    assert contents(await take(updates, 1)) == [b"hello"]


async def eventually(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


# From publisher to subscriber


def test_every_version_comes_once_and_in_order(accelerate):
    async def body(fabric, alice, bob):
        async with bob.subscribe(SID, RID) as updates:
            await introduce(alice, updates)
            sent = [await alice.publish(SID, RID, b"%d" % n, {"n": str(n)}) for n in range(600)]
            got = await take(updates, 600)
        assert [event.position for event in got] == sent
        assert contents(got) == [b"%d" % n for n in range(600)]
        assert got[7].metadata["n"] == "7"
        assert (got[0].sid, got[0].rid) == (SID, RID)

    within_a_fabric(body, ["alice", "bob"], accelerate=accelerate)


def test_a_large_version(accelerate):
    async def body(fabric, alice, bob):
        content = bytes(range(256)) * 4096
        await alice.publish(SID, RID, content)
        assert (await bob.subscribe_sync(SID, RID, 60)).content == content

    within_a_fabric(body, ["alice", "bob"], accelerate=accelerate)


def test_a_late_joiner_gets_the_latest_version_and_what_follows():
    async def body(fabric, alice, bob):
        for n in range(5):
            await alice.publish(SID, RID, b"%d" % n)
        async with bob.subscribe(SID, RID) as updates:
            assert contents(await take(updates, 1)) == [b"4"]
            await alice.publish(SID, RID, b"5")
            assert contents(await take(updates, 1)) == [b"5"]

    within_a_fabric(body, ["alice", "bob"])


def test_ids_of_topics_are_taken_as_they_are():
    async def body(fabric, alice, bob):
        topic = identify("http://news.site-a.test/feed.xml")
        await alice.publish(topic.sid, topic.rid, b"news")
        assert (await bob.subscribe_sync(topic.sid, topic.rid)).rid == topic.rid.raw
        for sid, rid in ((b"short", RID), (SID, b"short")):
            with pytest.raises(InvalidId):
                await alice.publish(sid, rid, b"")
            with pytest.raises(InvalidId):
                bob.subscribe(sid, rid)

    within_a_fabric(body, ["alice", "bob"])


def test_an_item_may_be_named_by_its_topic():
    async def body(fabric, alice, bob):
        url = "HTTP://News.example:80/feed"
        topic = identify(url)
        async with bob.subscribe(topic) as updates:
            first = await alice.publish(url, b"a")
            found = await take(updates, 1)
            second = await alice.publish(topic, b"b", {"content_type": "text/plain"})
            found += await take(updates, 1)
        assert [each.position for each in found] == [first, second]
        assert [each.metadata["topic"] for each in found] == [topic.canonical] * 2
        assert found[1].metadata["content_type"] == "text/plain"
        assert (found[0].sid, found[0].rid) == (topic.sid.raw, topic.rid.raw)
        assert (await bob.subscribe_sync(url)).content == b"b"
        await alice.withdraw(url)
        async with alice.offer(url) as offering:
            assert (offering.sid, offering.rid) == (topic.sid.raw, topic.rid.raw)

    within_a_fabric(body, ["alice", "bob"])


NAMELESS = [
    (), (None,), (None, b"x"), (5, b"x"), ("no topic", b"x"), ("", b"x"), (SID, b"x"),
    ("ab" * 32, "cd" * 32, b"x"), (SID, "cd" * 32, b"x"), (SID,), (None, RID, b"x"),
]  # fmt: skip
EMPTY = [
    ("http://e.example/",), ("http://e.example/", "text"), ("http://e.example/", None), (SID, RID),
    (SID, RID, "text"), ("http://e.example/", RID, b"x", {}), (identify("http://e.example/"),),
]  # fmt: skip


def test_what_names_no_item_gets_a_sentence():
    told_what_to_pass = pytest.raises(
        (NotAnItem, InvalidId), match=r"pass (a Topic, a URL|them all)"
    )

    async def body(fabric, alice):
        for what in NAMELESS + EMPTY:
            with told_what_to_pass:
                await alice.publish(*what)
        for what in NAMELESS[1:]:
            with told_what_to_pass:
                alice.offer(*what[:2])
        for what in (None, 5, "no topic", b"short"):
            with told_what_to_pass:
                alice.subscribe(what)

    within_a_fabric(body, ["alice"])


def test_a_scope_has_many_items():
    async def body(fabric, alice, bob, carol):
        async with bob.subscribe(SID) as updates:
            await alice.publish(SID, RID, b"a1")
            first = await take(updates, 1)
            await carol.publish(SID, OTHER, b"c1")
            await alice.publish(SID, RID, b"a2")
            got = first + await take(updates, 2)
            assert {(event.rid, event.content) for event in got} == {
                (RID, b"a1"), (RID, b"a2"), (OTHER, b"c1"),
            }  # fmt: skip
        places = [(event.rid, event.position) for event in first]
        async with bob.subscribe(SID, after=places) as updates:
            got = await take(updates, 2)
            assert {event.content for event in got} == {b"a2", b"c1"}

    within_a_fabric(body, ["alice", "bob", "carol"])


def test_two_subscriptions_to_one_item_are_independent():
    async def body(fabric, alice, bob):
        await alice.publish(SID, RID, b"1")
        async with bob.subscribe(SID, RID) as first:
            await take(first, 1)
            for n in range(2, 6):
                await alice.publish(SID, RID, b"%d" % n)
            assert contents(await take(first, 4)) == [b"2", b"3", b"4", b"5"]
            async with bob.subscribe(SID, RID) as second:
                assert contents(await take(second, 1)) == [b"5"], "the latest there is"
                await alice.publish(SID, RID, b"6")
                assert contents(await take(second, 1)) == [b"6"]
            await alice.publish(SID, RID, b"7")
            assert contents(await take(first, 2)) == [b"6", b"7"]

    within_a_fabric(body, ["alice", "bob"])


def test_two_publishers_of_one_item_have_streams_of_their_own():
    async def body(fabric, alice, bob, carol):
        async with carol.subscribe(SID, RID) as item, carol.subscribe(SID) as scope:
            for publisher in (alice, bob):
                await publisher.publish(SID, RID, b"hello")
            for updates in (item, scope):
                assert contents(await take(updates, 2)) == [b"hello"] * 2
            for n in range(20):
                for publisher in (alice, bob):
                    await publisher.publish(SID, RID, b"%d" % n)
            for updates in (item, scope):
                streams = {}
                for event in await take(updates, 40):
                    streams.setdefault(event.position.publisher, []).append(event.content)
                assert list(streams.values()) == [[b"%d" % n for n in range(20)]] * 2

    within_a_fabric(body, ["alice", "bob", "carol"])


def test_going_on_after_a_position():
    async def body(fabric, alice, bob):
        sent = [await alice.publish(SID, RID, b"%d" % n) for n in range(10)]
        async with bob.subscribe(SID, RID, after=sent[3]) as updates:
            assert [event.position for event in await take(updates, 6)] == sent[4:]

    within_a_fabric(body, ["alice", "bob"])


def test_what_the_history_has_lost_is_a_gap():
    async def body(fabric, alice, bob):
        sent = [await alice.publish(SID, RID, b"%d" % n) for n in range(20)]
        async with bob.subscribe(SID, RID, after=sent[3]) as updates:
            gap, *rest = await take(updates, 9)
        assert isinstance(gap, Gap)
        assert (gap.first, gap.last) == (5, 12)
        assert [event.position for event in rest] == sent[12:]

    within_a_fabric(body, ["alice", "bob"], publications=PublicationSettings(history_versions=8))


def test_positions_that_others_gave():
    async def body(fabric, alice, bob):
        hub = PublisherId(b"h" * 16)
        assert await alice.publish(SID, RID, b"", position=Position(hub, 3, 7)) == Position(
            hub, 3, 7
        )
        assert await alice.publish(SID, RID, b"") == Position(hub, 3, 8)
        with pytest.raises(NotPublished):
            await alice.publish(SID, RID, b"", position=Position(hub, 3, 8))
        with pytest.raises(NotPublished):
            await alice.publish(SID, RID, bytes(1_001))
        assert (await bob.subscribe_sync(SID, RID)).position == Position(hub, 3, 8)

    within_a_fabric(body, ["alice", "bob"], publications=PublicationSettings(largest=1_000))


# Listeners


def test_listeners_may_be_async_or_not():
    async def body(fabric, alice, bob):
        got, later = [], []

        async def listener(event):
            await asyncio.sleep(0.001)
            later.append(event)

        bob.subscribe(SID, RID, got.append)
        ready = bob.subscribe(SID, RID, listener)
        with pytest.raises(TypeError):
            aiter(ready)
        for n in range(50):
            await alice.publish(SID, RID, b"%d" % n)
        await ready.ready()
        await alice.publish(SID, RID, b"last")
        await eventually(
            lambda: got and later and got[-1] == later[-1] and got[-1].content == b"last"
        )
        versions = [event.position.version for event in got]
        assert versions == list(range(versions[0], 52))

    within_a_fabric(body, ["alice", "bob"])


def test_a_listener_that_raises_gets_the_event_again(monkeypatch, caplog):
    monkeypatch.setattr(updates_module, "AGAIN", 0.02)

    async def body(fabric, alice, bob):
        calls = []

        async def listener(event):
            calls.append(event.content)
            if calls.count(b"bad") in (1, 2):
                raise ValueError("not yet")

        await alice.publish(SID, RID, b"good")
        subscription = bob.subscribe(SID, RID, listener)
        await eventually(lambda: calls == [b"good"])
        await alice.publish(SID, RID, b"bad")
        await alice.publish(SID, RID, b"after")
        await eventually(lambda: len(calls) >= 5)
        assert calls == [b"good", b"bad", b"bad", b"bad", b"after"]
        await bob.unsubscribe(subscription)
        await bob.unsubscribe(subscription)
        await alice.publish(SID, RID, b"unheard")
        await alice.drained(60)
        assert len(calls) == 5

    within_a_fabric(body, ["alice", "bob"])
    assert sum(record.message.startswith("listener.failed") for record in caplog.records) == 2


def test_a_slow_listener_holds_up_nobody_and_loses_nothing():
    few = PublicationSettings(unfinished_events=4)

    async def body(fabric, alice, bob, carol):
        slow, most = [], 0

        async def listener(event):
            nonlocal most
            most = max(most, len(subscription._inbox) + 1)
            slow.append(event)
            await asyncio.sleep(0.002)

        subscription = bob.subscribe(SID, RID, listener)
        async with carol.subscribe(SID, RID) as updates:
            await introduce(alice, updates)
            await eventually(lambda: slow)
            for n in range(200):
                await alice.publish(SID, RID, b"%d" % n)
            fast = await take(updates, 200)
        await eventually(lambda: len(slow) >= 201)
        assert contents(fast) == contents(slow[1:]) == [b"%d" % n for n in range(200)]
        assert most <= 4

    within_a_fabric(body, ["alice", "bob", "carol"], publications=few)


def test_a_listener_may_end_its_own_subscription(tmp_path):
    async def body(fabric, alice):
        await alice.publish(SID, RID, b"1")
        async with fabric.connect("bob", storage=tmp_path / "bob") as bob:
            got = []

            async def listener(event):
                await bob.unsubscribe(subscription)
                got.append(event.content)

            subscription = bob.subscribe(SID, RID, listener, durable="once")
            await eventually(lambda: got == [b"1"])
            await eventually(lambda: not bob._updates)
            await alice.publish(SID, RID, b"2")
            # The event during which it was closed is done.
            async with bob.subscribe(SID, RID, durable="once") as updates:
                assert contents(await take(updates, 1)) == [b"2"]
            assert got == [b"1"]

    within_a_fabric(body, ["alice"])


# Those who come back


def test_a_durable_subscriber_goes_on_where_it_was_done(tmp_path):
    async def body(fabric, alice):
        def bob():
            return fabric.connect("bob", storage=tmp_path / "bob")

        async with bob() as first, first.subscribe(SID, RID, durable="reader") as updates:
            await introduce(alice, updates)
            for n in range(1, 5):
                await alice.publish(SID, RID, b"%d" % n)
            assert contents(await take(updates, 3)) == [b"1", b"2", b"3"]  # 3 is not done
        for n in range(5, 8):
            await alice.publish(SID, RID, b"%d" % n)
        async with bob() as second, second.subscribe(SID, RID, durable="reader") as updates:
            assert contents(await take(updates, 5)) == [b"3", b"4", b"5", b"6", b"7"]
            updates.done()
        await alice.publish(SID, RID, b"8")
        async with bob() as third:
            got, stuck = [], asyncio.Event()

            async def listener(event):
                got.append(event.content)
                if event.content == b"9":
                    await stuck.wait()

            third.subscribe(SID, RID, listener, durable="reader")
            await alice.publish(SID, RID, b"9")
            await eventually(lambda: got == [b"8", b"9"])
        async with bob() as fourth, fourth.subscribe(SID, RID, durable="reader") as updates:
            assert contents(await take(updates, 1)) == [b"9"], "its listener was cancelled"

    within_a_fabric(body, ["alice"])


def test_a_durable_publisher_goes_on_with_its_stream(tmp_path):
    async def body(fabric, bob):
        def alice():
            return fabric.connect("alice", storage=tmp_path / "alice")

        async with bob.subscribe(SID, RID) as updates:
            async with alice() as first, first.offer(SID, RID, durable=True) as offering:
                assert offering.latest is None
                await introduce(first, updates)
                sent = [await offering.publish(b"%d" % n) for n in range(3)]
                got = await take(updates, 3)
            async with alice() as second:
                offering = await second.offer(SID, RID, durable=True)
                assert offering.latest == sent[-1]
                sent += [await offering.publish(b"%d" % n) for n in range(3, 6)]
                got += await take(updates, 3)
                with pytest.raises(ValueError, match="offered already"):
                    second.offer(SID, RID, durable=True)
        assert [event.position for event in got] == sent
        assert sent[-1].version == 7

    within_a_fabric(body, ["bob"])


def test_a_publisher_that_lost_its_state_begins_a_new_epoch():
    async def body(fabric, bob):
        async with bob.subscribe(SID, RID) as updates:
            async with fabric.connect("alice") as alice:
                before = await alice.publish(SID, RID, b"before")
                await take(updates, 1)
            async with fabric.connect("alice") as alice:
                after = await alice.publish(SID, RID, b"after")
                reset, update = await take(updates, 2)
        assert isinstance(reset, Reset)
        assert reset.previous == before
        assert reset.epoch == after.epoch == update.position.epoch > before.epoch
        assert update.content == b"after"

    within_a_fabric(body, ["bob"])


# Waiting


def test_nothing_published_in_time():
    async def body(fabric, alice, bob):
        await alice.offer(SID, RID)
        with pytest.raises(NothingPublished, match=r"within 0\.1 s: check its ids"):
            await bob.subscribe_sync(SID, RID, 0.1)
        waiting = asyncio.create_task(bob.subscribe_sync(SID, RID, 60))
        await asyncio.sleep(0.05)
        await alice.publish(SID, RID, b"at last")
        assert (await waiting).content == b"at last"
        assert not bob._updates

    within_a_fabric(body, ["alice", "bob"])


def test_who_is_cancelled_misses_nothing():
    async def body(fabric, alice, bob):
        await alice.offer(SID, RID)
        async with bob.subscribe(SID, RID) as updates:
            await updates.ready()
            for n in range(3):
                for _ in range(2):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(updates), 0.01)
                await alice.publish(SID, RID, b"%d" % n)
                assert contents(await take(updates, 1)) == [b"%d" % n]

            async def listen():
                async with bob.subscribe(SID, RID) as own:
                    async for _ in own:
                        pass

            task = asyncio.create_task(listen())
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert list(bob._updates) == [updates]

    within_a_fabric(body, ["alice", "bob"])


def test_publishers_wait_their_turn_while_there_is_no_room(monkeypatch):
    full = True
    monkeypatch.setattr(Outbox, "_is_congested", lambda self, item: full)

    async def body(fabric, alice):
        nonlocal full
        with pytest.raises(Congested, match="publish less"):
            await alice.publish(SID, RID, b"too much", timeout=0.05)
        waiting = [asyncio.create_task(alice.publish(SID, RID, b"%d" % n)) for n in range(5)]
        await asyncio.sleep(0.05)
        waiting.pop(1).cancel()
        assert not alice.node.client.offers
        full = False
        late = asyncio.create_task(alice.publish(SID, RID, b"late"))
        positions = await asyncio.gather(*waiting, late)
        assert [position.version for position in positions] == [1, 2, 3, 4, 5]
        assert (await alice.subscribe_sync(SID, RID)).content == b"late"

    within_a_fabric(body, ["alice"])


@pytest.mark.parametrize(
    ("settings", "size", "count"),
    [
        pytest.param(PublicationSettings(history_versions=64), 10, 200, id="versions"),
        pytest.param(PublicationSettings(history_bytes=2 << 20), 100_000, 60, id="bytes"),
    ],
)
def test_a_publisher_in_a_hurry_does_not_outrun_its_history(settings, size, count):
    async def body(fabric, alice, bob):
        async with bob.subscribe(SID, RID) as updates:
            await introduce(alice, updates)

            async def publish_all():
                for n in range(count):
                    await alice.publish(SID, RID, n.to_bytes(size), timeout=PATIENCE)

            publishing = asyncio.create_task(publish_all())
            got = await take(updates, count)
            await publishing
        assert all(isinstance(event, Update) for event in got)
        assert [int.from_bytes(event.content) for event in got] == list(range(count))

    within_a_fabric(body, ["alice", "bob"], publications=settings)


def test_drained_means_that_listeners_have_everything():
    async def body(fabric, alice, bob):
        async with bob.subscribe(SID, RID) as updates:
            await introduce(alice, updates)
            for _ in range(100):
                await alice.publish(SID, RID, bytes(10_000))
            await alice.drained(60)
            ((reception,),) = [
                item.values() for item in bob.node.client.subscriber.receptions.values()
            ]
            assert reception._next() == 102
            await take(updates, 100)

    within_a_fabric(body, ["alice", "bob"])


def test_who_publishes_and_goes_is_heard():
    async def body(fabric, bob):
        async with bob.subscribe(SID, RID) as updates:
            async with fabric.connect("alice", closing=60) as alice:
                await alice.publish(SID, RID, b"by the way")
            assert contents(await take(updates, 1)) == [b"by the way"]

    within_a_fabric(body, ["bob"])


# Refusals


def test_who_may_not_publish_is_refused():
    async def body(fabric, alice, bob):
        await alice.offer(SID, RID, key=KEY, access=Access((PUBLIC,), Open.FABRIC))
        with pytest.raises(Refused, match="use a key that they name") as refused:
            await bob.offer(SID, OTHER)
        assert refused.value.code is Code.NOT_ALLOWED
        assert not bob.node.client.offers
        await bob.publish(SID, OTHER, b"nobody was asked yet")
        with pytest.raises(Refused):
            await bob.drained(60)
        with pytest.raises(Refused):
            await bob.publish(SID, OTHER, b"")
        await bob.withdraw(SID, OTHER)
        async with bob.offer(SID, OTHER, key=KEY) as offering:
            await offering.publish(b"signed")
            assert (await alice.subscribe_sync(SID, OTHER)).content == b"signed"

    within_a_fabric(body, ["alice", "bob"])


def test_the_rules_of_a_scope_that_exists_stay():
    async def body(fabric, alice, bob):
        registered = asyncio.get_running_loop().create_future()
        bob.node.rendezvous.publish_scope(SID, registered.set_result)
        assert await registered is Code.OK
        # It asks for the rules to be made only where nobody has made any.
        offering = await alice.offer(SID, RID, access=Access(Open.ANYONE, Open.ANYONE))
        assert await offering.publish(b"under the rules that there are")

    within_a_fabric(body, ["alice", "bob"])


def test_who_may_not_subscribe_is_refused(caplog):
    async def body(fabric, alice, bob):
        offering = await alice.offer(SID, RID, key=KEY, access=Access(Open.FABRIC, (PUBLIC,)))
        await offering.publish(b"secret")
        got = []
        with pytest.raises(Refused) as refused:
            await bob.subscribe(SID, RID, got.append).ready()
        assert refused.value.code is Code.NOT_ALLOWED
        async with bob.subscribe(SID, RID) as updates:
            for _ in range(2):
                with pytest.raises(Refused):
                    await anext(updates)
        with pytest.raises(Refused):
            await bob.subscribe_sync(SID, RID)
        assert not got
        assert not bob._updates
        async with bob.subscribe(SID, RID, key=KEY) as updates:
            assert contents(await take(updates, 1)) == [b"secret"]

    within_a_fabric(body, ["alice", "bob"])
    assert sum("was refused (NOT_ALLOWED)" in record.message for record in caplog.records) == 1


# Offers


def test_an_offer_is_withdrawn_at_the_end_of_its_block():
    async def body(fabric, alice, bob):
        await alice.offer(SID, OTHER)
        async with alice.offer(SID, RID) as offering:
            await offering.publish(b"now")
            assert offering.latest.version == 1
            assert (await bob.subscribe_sync(SID, RID)).content == b"now"
            assert (await alice.offer(SID, RID)).latest == offering.latest
        with pytest.raises(NothingPublished):
            await bob.subscribe_sync(SID, RID, 0.2)
        with pytest.raises(KeyError):
            async with alice.offer(SID, RID):
                raise KeyError
        await eventually(lambda: (SID, RID) not in alice.node.client.offers)
        async with alice.offer(SID, RID, durable=True) as offering:
            kept = await offering.publish(b"kept")
        assert (SID, RID) not in alice.node.client.offers
        assert (await alice.offer(SID, RID, durable=True)).latest == kept
        await alice.withdraw(SID, RID)
        await alice.withdraw(SID, RID)
        assert (await alice.offer(SID, RID, durable=True)).latest is None
        await alice.withdraw(SID, RID)
        assert list(alice.node.client.offers) == [(SID, OTHER)]

    within_a_fabric(body, ["alice", "bob"])


# The end


def test_closing_ends_everything_once():
    async def body(fabric, alice, bob):
        ended = asyncio.Event()

        async def iterate():
            async for _ in bob.subscribe(SID, RID):
                pass
            ended.set()

        task = asyncio.create_task(iterate())
        quiet = bob.subscribe(OTHER, RID)
        syncing = asyncio.create_task(bob.subscribe_sync(OTHER, RID))
        await alice.publish(SID, RID, b"1")
        await asyncio.sleep(0.05)
        await bob.close()
        await bob.close()
        await asyncio.wait_for(ended.wait(), 60)
        await task
        with pytest.raises(ClientClosed):
            await syncing
        with pytest.raises(ClientClosed, match="the client of bob is closed"):
            await bob.publish(SID, RID, b"")
        for call in (bob.subscribe, bob.offer):
            with pytest.raises(ClientClosed):
                call(SID, RID)
        with pytest.raises(ClientClosed):
            await bob.drained()
        await quiet.close()
        with pytest.raises(StopAsyncIteration):
            await anext(quiet)

    within_a_fabric(body, ["alice", "bob"])


def test_a_node_that_runs_already_goes_on_without_its_client():
    async def body(fabric, alice):
        node = fabric.nodes["r1"]
        async with FabricClient(node) as first:
            await first.publish(SID, RID, b"from a server")
            assert (await first.subscribe_sync(SID, RID)).content == b"from a server"
            moved = node.client.publisher.moved
        assert node.client.publisher.moved is not moved
        assert (await alice.subscribe_sync(SID, RID)).content == b"from a server"
        async with FabricClient(node) as second:
            assert (await second.publish(SID, RID, b"again")).version == 2

    within_a_fabric(body, ["alice"])


def test_a_durable_version_that_is_being_kept_while_the_client_closes(monkeypatch, tmp_path):
    async def body(fabric):
        async with fabric.connect("alice", storage=tmp_path / "alice", closing=0.05) as alice:
            await alice.offer(SID, RID, durable=True)
            monkeypatch.setattr(alice.node.env.storage, "write", lambda changes, done=None: None)
            publishing = asyncio.create_task(alice.publish(SID, RID, b"kept?"))
            await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await publishing

    within_a_fabric(body)


# Alone


@contextlib.contextmanager
def silent():
    """An address where nobody answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        yield opened.getsockname()


def test_without_a_fabric_everything_says_so(caplog):
    async def main():
        async with UdpNode("alone", ("127.0.0.1", 0)) as env:
            node = env.run(lambda env: FabricNode(env, ALONE))
            fabric = FabricClient(node, closing=0.05)
            if not node.begun:
                with pytest.raises(FabricError, match="has not begun"):
                    fabric.subscribe(SID, RID)
            async with fabric:
                with pytest.raises(NotAttached, match="it has no links"):
                    await fabric.attached(0.05)
                assert (await fabric.publish(SID, RID, b"kept")).version == 1
                with pytest.raises(NotRegistered, match="it stands"):
                    await fabric.offer(SID, OTHER, timeout=0.05)
                updates = fabric.subscribe(SID, RID)
                with pytest.raises(NotRegistered, match="it stands"):
                    await updates.ready(0.05)
                with pytest.raises(NotDrained, match="2 are not registered"):
                    await fabric.drained(0.05)
                unready = asyncio.create_task(updates.ready())
                await asyncio.sleep(0)
            with pytest.raises(ClientClosed, match="the subscription was closed"):
                await unready

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "node.close_failed node=alone" in caplog.text


def test_connecting_to_nobody():
    async def body(fabric):
        with silent() as address, pytest.raises(NotAttached, match="no neighbour answered"):
            async with FabricClient.connect(
                "lost", servers=[address], keys="k", link_seed="s", timeout=0.2
            ):
                pass
        with pytest.raises(NotAttached, match="no neighbour answered"):
            async with fabric.connect("stranger", settings=ALONE, timeout=0.3):
                pass
        with pytest.raises(ValueError, match="name keys and link_seed"):
            async with FabricClient.connect("nobody", keys="k"):
                pass

    within_a_fabric(body)
