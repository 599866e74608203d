"""Publishers that know nothing of us, and what mosquitto does without us."""

from __future__ import annotations

import asyncio

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from bench import mqtt
from bench.handoff_brokers import Session
from bench.handoff_movers import arrive, body, leave
from tests.psph.mobility.mqtt_world import SOON, World, exactly, in_a_loop, publishing, until

pytestmark = pytest.mark.skipif(mqtt.program() is None, reason="mosquitto is not installed")


class Stranger:
    """A publisher as anybody has it: paho, in a thread, at least once."""

    def __init__(self, place):
        host, _, port = place.rpartition(":")
        self._client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        self._client.connect(host, int(port))
        self._client.loop_start()

    def publish(self, number):
        self._client.publish("news", body(number), qos=1)

    def close(self):
        self._client.disconnect()
        self._client.loop_stop()


@in_a_loop
async def test_an_entrance_numbers_what_strangers_publish_and_is_killed(tmp_path):
    # The bridge carries what has Positions; the plain topic stays at its broker.
    async with World(tmp_path, "news", topics=("news/+", "mobility/call/+")) as world:
        reader = await world.roamer("reader", SOON)
        reader.client.subscribe("news")
        await world.arrive(reader, "A")
        stranger = Stranger(world.places["B"])
        flow = asyncio.create_task(publishing(stranger, range(300)))
        await until(lambda: len(reader.arrivals.numbers) > 10, "the first")
        await world.leave(reader)
        await asyncio.sleep(0.2)
        world.kill_proxy("B")
        await asyncio.sleep(0.1)
        world.start_proxy("B")
        await world.arrive(reader, "B")
        await flow
        await exactly(reader.arrivals, range(300))
        await asyncio.to_thread(stranger.close)


@in_a_loop
async def test_the_same_moves_with_persistent_sessions_lose_or_double(tmp_path):
    async with World(tmp_path) as world:
        writer = await world.roamer("writer")
        await world.arrive(writer, "B")
        sessions = [Session("new"), Session("made-ahead")]
        await arrive(sessions[1:], world.places["B"])
        await leave(sessions[1:])
        await arrive(sessions, world.places["A"])
        flow = asyncio.create_task(publishing(writer, range(50)))
        await until(lambda: all(len(each.arrivals.numbers) > 20 for each in sessions), "the first")
        await leave(sessions)
        await flow
        await publishing(writer, range(50, 100))  # while they are nowhere
        await until(lambda: not writer.client.outgoing, "everything is taken")
        await arrive(sessions, world.places["B"])
        writer.publish(100)
        await until(lambda: all(100 in each.arrivals.numbers for each in sessions), "the last")
        new, ahead = (each.arrivals for each in sessions)
        assert new.lost(100) > 10
        assert new.doubled == 0
        assert ahead.lost(100) == 0
        assert ahead.doubled > 10
        await leave(sessions)
