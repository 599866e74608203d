"""GET /mobility/native: who may ask for what, and what a stream of it says."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from identifiers import Position, PublisherId, identify
from psirp_sim.publications.events import Gap, Reset
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.runtime.loopback import LoopbackFabric
from psph.configuration.mobility import MobilityConfiguration
from psph.mobility.hub_port import HubPort
from psph.mobility.native_routes import NativeRoutes, as_event
from psph.mobility.native_topics import NativeScopes
from push_hub import HubSettings, create_app
from push_hub.keys import HUB
from tests.psph.mobility.places import TOPIC as WEB_TOPIC
from tests.psph.mobility.places import give, places, until

SID, RID = bytes([0x5C] * 32), bytes([0xAB] * 32)
TOPIC = f"psirp:{SID.hex()}/{RID.hex()}"
PUBLISHER = PublisherId(b"a sensor's own i")


@asynccontextmanager
async def served(directory, **settings):
    """A hub at a node of a fabric, and a publisher at another."""
    settings = MobilityConfiguration(native_scopes=[SID.hex()], **settings)
    publications = PublicationSettings(history_versions=4)
    async with LoopbackFabric(publications=publications) as fabric:
        sensor, psph = [await fabric.client(name) for name in ("sensor", "psph")]
        app = create_app(HubSettings("http://127.0.0.1:1", follow_after=None), directory)
        NativeRoutes(psph.node, NativeScopes(settings.native_scopes), settings).add(app)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/mobility/native"
        try:
            async with aiohttp.ClientSession() as session:
                yield sensor, psph, session, url
        finally:
            await runner.cleanup()


async def said(stream):
    """The next event: its kind and data."""
    kind = "message"
    async with asyncio.timeout(30):
        while line := (await stream.content.readline()).decode():
            if line.startswith("event: "):
                kind = line.split()[1]
            elif line.startswith("data: "):
                return kind, json.loads(line.removeprefix("data: "))
    return "end", None


def test_a_stream_begins_goes_on_and_says_what_is_missing(tmp_path):
    async def main():
        async with served(tmp_path) as (sensor, _, session, url):

            async def publish(*versions):
                for version in versions:
                    position = Position(PUBLISHER, 1, version)
                    await sensor.publish(SID, RID, b"%d" % version, position=position)

            async with session.get(url, params={"topic": TOPIC}) as stream:
                assert await said(stream) == ("base", {"topic": TOPIC, "base": []})
                for version in (1, 2):
                    await publish(version)
                    kind, event = await said(stream)
                    assert (kind, event["position"]) == ("message", f"{PUBLISHER}.1.{version}")
            await publish(3, 4, 5, 6, 7)
            after = f"{PUBLISHER}.1.2"
            async with session.get(url, params={"topic": TOPIC, "after": after}) as stream:
                kind, event = await said(stream)
                assert (kind, event["resumes"]) == ("gap", f"{PUBLISHER}.1.4")
                for version in (4, 5, 6, 7):
                    assert (await said(stream))[1]["position"] == f"{PUBLISHER}.1.{version}"
                assert await said(stream) == ("base", {"topic": TOPIC, "base": [after]})

    asyncio.run(main())


def test_what_is_asked_for_wrongly_or_too_often_is_refused_with_a_reason(tmp_path):
    wrong = [
        ({}, 400, "name from 1"),
        ({"topic": WEB_TOPIC}, 400, "psirp:SID/RID"),
        ({"topic": f"psirp:{'5C' * 32}/{'ab' * 32}"}, 400, "psirp:SID/RID"),
        ({"topic": f"psirp:{'00' * 32}/{'ab' * 32}"}, 403, "not passed on"),
        ({"topic": TOPIC, "after": "7"}, 400, "after"),
        ([("topic", TOPIC), ("after", "now"), ("after", "now")], 400, "once for each"),
        ([("topic", f"psirp:{SID.hex()}/{n:064x}") for n in range(41)], 400, "1 to 40"),
    ]

    async def main():
        async with served(tmp_path, clients_per_address=1) as (_, psph, session, url):
            for query, status, words in wrong:
                async with session.get(url, params=query) as answer:
                    assert (answer.status, words in await answer.text()) == (status, True), query
            async with session.get(url, params={"topic": TOPIC}) as stream:
                await said(stream)
                async with session.get(url, params={"topic": TOPIC}) as answer:
                    assert answer.status == 503
            # That it left is noticed when the next heartbeat cannot be sent.
            await until(lambda: not psph.node.client.subscriber.subscriptions)

    asyncio.run(main())


def test_a_gap_before_the_first_version_and_a_reset_are_seen_by_the_next_position():
    assert as_event(TOPIC, Gap(SID, RID, PUBLISHER, 1, 1, 5)) == b""
    assert as_event(TOPIC, Reset(SID, RID, PUBLISHER, 2, None)) == b""
    assert b'"resumes": "' in as_event(TOPIC, Gap(SID, RID, PUBLISHER, 1, 2, 5))


def test_a_conversation_is_no_topic_of_clients_that_move(tmp_path):
    """Who takes part in it has a token; a client that moves shows none."""
    conversation = "xmpp:alice@site-a.test?to=bob@site-b.test"

    class Ear:
        def __init__(self):
            self.began, self.came = False, []

        def subscribed(self, topic, base):
            self.began = True

        def deliver(self, topic, position, message):
            self.came.append(message.body)

    async def main():
        async with places(tmp_path, 1) as (place,):
            stranger, reader = Ear(), Ear()
            port = HubPort(place.hub, 1)
            port.subscribe(conversation, None, stranger)
            port.subscribe(WEB_TOPIC, None, reader)
            await until(lambda: stranger.began and reader.began)
            topic = identify(conversation)
            await place.app[HUB].publish(topic, "text/plain", b"a secret")
            await give((place,), 1)
            await until(lambda: reader.came)
            assert stranger.came == []
            await port.stop()

    asyncio.run(main())


@pytest.mark.parametrize("topic", ["psirp:x", "mailto:x"])
def test_native_ids_are_exact(topic):
    from psph.mobility.native_topics import native_ids

    assert native_ids(topic) is None
