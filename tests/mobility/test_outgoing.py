"""What a client publishes keeps its Position, and no Position is given twice."""

from __future__ import annotations

from identifiers import PublisherId
from mobility.outgoing import Outgoing
from mobility.port import Message
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.simulator import Simulator


class Client:
    """A core that publishes what it is told to."""

    def __init__(self, env):
        self.outgoing = Outgoing(env, None, PublisherId(b"p" * 16), most=100, window=10)
        self.given = []

    def start(self):
        self.outgoing.restore()

    def publish(self, world, body):
        self.outgoing.publish("topic", Message(body), self.given.append)
        world.run_for(SECOND)
        position = self.given[-1]
        return position.epoch, position.version


def restarted(world):
    world.crash("client")
    world.restart("client")
    return world.nodes["client"].core


def test_after_a_power_cut_it_numbers_in_a_new_epoch():
    world = Simulator(1)
    node = world.add_node("client", Client)
    world.run_for(SECOND)
    assert node.core.publish(world, b"one") == (1, 1)
    client = restarted(world)
    assert client.publish(world, b"two") == (1, 2)
    node.crash_cuts_power = True
    client = restarted(world)
    kept = [(waiting.epoch, waiting.version) for waiting in client.outgoing._waiting.values()]
    assert kept == [(1, 1), (1, 2)][: len(kept)], "what is left keeps its Positions"
    assert client.publish(world, b"another two") == (2, 1)
    node.crash_cuts_power = False
    assert restarted(world).publish(world, b"three") == (2, 2)
