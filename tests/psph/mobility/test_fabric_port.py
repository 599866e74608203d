"""The fabric as the pub/sub system of moving clients, on real sockets."""

from __future__ import annotations

import asyncio

import pytest

from identifiers import Position, PublisherId
from mobility import Message
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.loopback import LoopbackFabric
from psph.mobility.fabric_port import FabricPort, ids_of
from psph.mobility.native_topics import NativeTopics
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
            await until(lambda: first.came)
            assert first.bases == [None]
            await publish(2, 3)
            await until(lambda: len(first.came) == 3)
            assert first.came[-1] == (3, b"3", "text/plain")
            subscription.cancel()
            subscription.cancel()
            await publish(4, 5)
            two.subscribe(TOPIC, (at(3),), second)
            await until(lambda: [each[0] for each in second.came] == [4, 5])
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
