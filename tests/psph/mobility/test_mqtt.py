"""Clients that move between two mosquittos: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from itertools import cycle

import pytest

from bench import mqtt
from tests.psph.mobility.mqtt_world import SOON, World, exactly, in_a_loop, publishing, until

pytestmark = pytest.mark.skipif(mqtt.program() is None, reason="mosquitto is not installed")


@in_a_loop
async def test_a_client_and_a_publisher_move(tmp_path):
    async with World(tmp_path) as world:
        reader, writer = await world.roamer("reader"), await world.roamer("writer")
        reader.client.subscribe("news")
        await world.arrive(writer, "B")
        await world.arrive(reader, "A")
        flow = asyncio.create_task(publishing(writer, range(300)))
        for name in "BA":
            await world.leave(reader)
            await asyncio.sleep(0.2)
            await world.arrive(reader, name)
        # Without a word, and the publisher, too.
        reader.client.connection_lost()
        await world.leave(writer)
        await asyncio.sleep(0.2)
        await asyncio.gather(world.arrive(reader, "B"), world.arrive(writer, "A"))
        # On before it came.
        for name in "ABAB":
            reader.move_in(world.places[name])
            await asyncio.sleep(0.02)
        await flow
        await exactly(reader.arrivals, range(300))


@in_a_loop
async def test_the_proxy_just_left_is_killed(tmp_path):
    async with World(tmp_path) as world:
        reader, writer = await world.roamer("reader", SOON), await world.roamer("writer")
        reader.client.subscribe("news")
        await world.arrive(writer, "B")
        await world.arrive(reader, "A")
        flow = asyncio.create_task(publishing(writer, range(200)))
        await until(lambda: len(reader.arrivals.numbers) > 10, "the first")
        await world.leave(reader)
        await asyncio.sleep(0.1)
        world.kill_proxy("A")
        reader.move_in(world.places["B"])
        await asyncio.sleep(0.1)
        world.start_proxy("A")
        await flow
        await exactly(reader.arrivals, range(200))
        await until(lambda: reader.live, "being live again")


@in_a_loop
async def test_the_broker_is_killed_under_the_client(tmp_path):
    async with World(tmp_path) as world:
        reader, writer = await world.roamer("reader", SOON), await world.roamer("writer")
        reader.elsewhere = cycle([world.places["B"]]).__next__
        reader.client.subscribe("news")
        await world.arrive(writer, "B")
        await world.arrive(reader, "A")
        flow = asyncio.create_task(publishing(writer, range(200)))
        await until(lambda: len(reader.arrivals.numbers) > 10, "the first")
        world.brokers.kill("A")
        await until(lambda: reader.client.proxy == world.places["B"], "moving on")
        await asyncio.sleep(0.2)
        world.brokers.start("A")
        await flow
        await exactly(reader.arrivals, range(200))
        await until(lambda: reader.live, "being live again")
