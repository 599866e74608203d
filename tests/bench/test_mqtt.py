"""The reference of the benchmarks: mosquitto and the small MQTT client."""

import asyncio

import pytest

from bench import mqtt

needs_mosquitto = pytest.mark.skipif(mqtt.program() is None, reason="mosquitto is not installed")


@needs_mosquitto
def test_messages_of_every_length_arrive_in_order():
    sizes = [0, 1, 100, 118, 119, 120, 121, 16_370, 16_380, 16_390, 300_000, 3]
    payloads = [bytes((number,)) * size for number, size in enumerate(sizes)]

    async def exchange(port):
        came = []
        subscriber = mqtt.Client(port, "subscriber", came.append)
        publisher = mqtt.Client(port, "publisher", lambda payload: None)
        await subscriber.connect()
        await publisher.connect()
        await subscriber.subscribe("a/topic")
        for payload in payloads:
            await publisher.publish(mqtt.topic_of("a/topic"), payload)
            await publisher.publish(mqtt.topic_of("another"), b"not for us")
        async with asyncio.timeout(60):
            while len(came) < len(payloads):
                await asyncio.sleep(0.01)
        subscriber.close()
        publisher.close()
        return came

    with mqtt.broker() as port:
        assert asyncio.run(exchange(port)) == payloads


def test_without_mosquitto_there_is_no_port(monkeypatch):
    monkeypatch.setattr(mqtt, "program", lambda: None)
    with mqtt.broker() as port:
        assert port is None
