"""The fabric as the pub/sub system of moving clients, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from identifiers import Position, PublisherId
from mobility import Message
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.loopback import LoopbackFabric
from psph.mobility.fabric_port import FabricPort, ids_of
from psph.mobility.native_topics import NativeScopes, NativeTopics
from tests.psph.mobility.places import until

TOPIC = f"psirp:{'5c' * 32}/{'ab' * 32}"
PUBLISHER = PublisherId(b"a moving client.")


class Ear:
    """Notes what a subscription calls back."""

    def __init__(self):
        self.bases, self.came, self.gaps = [], [], []

    def subscribed(self, topic, base):
        self.bases.append(base)

    def deliver(self, topic, position, message):
        self.came.append((position.version, message.body, message.kind))

    def gap(self, topic, first, last):
        self.gaps.append((first.version, last.version))


def at(version):
    return Position(PUBLISHER, 1, version)


def test_a_subscription_goes_on_at_another_node_after_its_positions():
    async def main():
        settings = PublicationSettings(history_versions=6)
        async with LoopbackFabric(publications=settings) as fabric:
            nodes = [(await fabric.client(name)).node for name in ("out", "one", "two")]
            publisher, one, two = map(FabricPort, nodes)
            taken = []

            async def publish(*versions):
                count = len(taken) + len(versions)
                for version in versions:
                    message = Message(b"%d" % version, "text/plain")
                    publisher.publish(TOPIC, at(version), message, lambda: taken.append(1))
                assert len(taken) < count
                await until(lambda: len(taken) >= count)

            await publish(1)
            first, second, late = Ear(), Ear(), Ear()
            subscription = one.subscribe(TOPIC, None, first)
            assert not first.bases  # nothing is called back from inside a call
            await until(lambda: first.came and first.bases == [None])
            await publish(2, 3)
            await until(lambda: len(first.came) == 3)
            assert first.came[-1] == (3, b"3", "text/plain")
            subscription.cancel()
            subscription.cancel()
            await publish(4, 5)
            two.subscribe(TOPIC, (at(3),), second)
            await until(lambda: [each[0] for each in second.came] == [4, 5])
            # It has caught up: everything after the Position comes from here.
            await until(lambda: second.bases == [(at(3),)])
            assert len(first.came) == 3
            # Published again, as after a move: it is taken, and comes to nobody twice.
            await publish(5, 6, 7, 8, 9)
            await until(lambda: second.came[-1][0] == 9)
            assert [each[0] for each in second.came] == [4, 5, 6, 7, 8, 9]
            # The history has the last six.
            one.subscribe(TOPIC, (at(1),), late)
            await until(lambda: late.came and late.came[-1][0] == 9)
            assert late.gaps == [(2, 3)]
            assert [each[0] for each in late.came] == [4, 5, 6, 7, 8, 9]
            assert one.history(TOPIC) == 6

    asyncio.run(main())


def test_a_publisher_that_came_meanwhile_is_heard_from_its_beginning():
    """And one that is gone keeps nobody waiting: only then can nothing be promised."""
    other = PublisherId(b"somebody else...")

    async def main():
        async with LoopbackFabric() as fabric:
            names = ("new", "listener")
            new, listener = [(await fabric.client(name)).node for name in names]
            taken, ear = [], Ear()
            for version in (1, 2, 3):
                position, message = Position(other, 1, version), Message(b"%d" % version)
                FabricPort(new).publish(TOPIC, position, message, lambda: taken.append(1))
            await until(lambda: len(taken) == 3)
            FabricPort(listener).subscribe(TOPIC, (at(7),), ear)
            await until(lambda: [each[0] for each in ear.came] == [1, 2, 3])
            await until(lambda: ear.bases == [None])

    asyncio.run(main())


def test_only_topics_of_the_named_scopes_are_passed_on():
    async def main():
        async with LoopbackFabric() as fabric:
            nodes = [(await fabric.client(name)).node for name in ("out", "psph")]
            foreign = f"psirp:{'66' * 32}/{'ab' * 32}"
            port = FabricPort(nodes[1], NativeScopes(["5c" * 32]))
            named, others, taken = Ear(), Ear(), []
            port.subscribe(TOPIC, None, named)
            port.subscribe(foreign, None, others)
            await until(lambda: named.bases == others.bases == [None])
            for topic in (foreign, TOPIC):
                FabricPort(nodes[0]).publish(topic, at(1), Message(b"x"), lambda: taken.append(1))
            await until(lambda: named.came)
            assert nodes[1].client.status()["subscriptions"] == 1
            assert others.came == []

    asyncio.run(main())


@pytest.mark.parametrize("scope", ["", "5C" * 32, "5c" * 31, "**"])
def test_a_scope_is_named_by_its_id(scope):
    with pytest.raises(ValueError, match="is no scope id"):
        NativeScopes([scope])


def test_what_is_no_topic_is_nothing_to_wait_for():
    async def main():
        async with LoopbackFabric() as fabric:
            node, ear = (await fabric.client("one")).node, Ear()
            FabricPort(node).subscribe("no topic at all", None, ear)
            await until(lambda: ear.bases == [None])

    asyncio.run(main())


@pytest.mark.parametrize("topic", ["psirp:", "psirp:00/11", f"psirp:{'5C' * 32}/{'ab' * 32}"])
def test_only_exact_ids_are_native_topics(topic):
    assert ids_of(topic) is None


def test_native_topics_go_to_the_fabric_and_others_to_the_hub():
    class Counted:
        def __init__(self, history):
            self.depth = history

        def history(self, topic):
            return self.depth

    ports = NativeTopics(Counted(1), Counted(2))
    assert ports.history(TOPIC) == 1
    assert ports.history("http://news.site-b.test/feed") == 2
