"""`psph hub --domain --dns`: topics of zones with a fabric are followed at the domain's PSPH."""

import asyncio
import subprocess
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner

from bootstrap import Announcement, Resolver
from identifiers import ID_VERSION, identify, scope_id
from psph import admin_token
from psph.commands.hub import hub as hub_command
from psph.guide import DomainGuide, DomainHubs, SiblingHubs
from tests.bootstrap.name_servers import embedded
from tests.ports import free_port
from tests.psph.hub_process import running_hub
from tests.push_hub.world import Reader, run, served, until, until_async

TOPIC = "http://news.site-b.test/feed"


def zones(port, *more):
    """site-a.test is ours and has a PSPH, site-b.test a fabric, site-c.test neither."""
    soa = "@ 300 IN SOA ns hostmaster 1 3600 600 86400 5"
    base = (soa, "@ 300 IN NS ns", "ns 300 IN A 127.0.0.1")
    announced = Announcement(scope_id("site-b.test"), str(ID_VERSION), None).text()
    quoted = " ".join(f'"{each}"' for each in announced.split())
    return {
        "site-a.test": (
            *base, f"_psirp._tcp 300 IN SRV 0 1 {port} psph", "psph 300 IN A 127.0.0.1", *more
        ),
        "site-b.test": (*base, f"_psirp 300 IN TXT {quoted}"),
        "site-c.test": base,
    }  # fmt: skip


def test_the_guide_leads_to_our_own_psph(tmp_path):
    async def main(server):
        async with Resolver([server.address]) as resolver:
            guide = DomainGuide(resolver, "site-a.test")
            ours = {"http://psph.site-a.test:7001/hub", "http://other.site-a.test:7002/hub"}
            first, second = await guide.hubs_for(identify(TOPIC))
            assert {first, second} == ours
            # Topics are spread, and every hub of the domain chooses alike.
            topics = [identify(f"{TOPIC}/{n}") for n in range(40)]
            spread = [await guide.hubs_for(topic) for topic in topics]
            assert {order[0] for order in spread} == ours
            other = DomainGuide(resolver, "site-a.test")
            assert [await other.hubs_for(topic) for topic in topics] == spread
            guide.failed(first)
            guide.failed("http://nobody.test/hub")
            assert await guide.hubs_for(identify(TOPIC)) == [second, first]
            assert {(await guide.hubs_for(topic))[0] for topic in topics} == {second}
            hubs = DomainHubs(resolver, "site-a.test", identify(TOPIC))
            assert await hubs() == [second, first]
            guide.worked(first)
            assert await hubs() == [first, second]
            hubs.failed(first)
            assert await hubs() == [second, first]
            hubs.worked(first)
            assert await guide.hubs_for(identify("http://www.site-c.test/")) == []
            assert await guide.hubs_for(identify("http://127.0.0.1/")) == []
            homeless = DomainGuide(resolver, "site-c.test")
            assert await homeless.hubs_for(identify(TOPIC)) == []

    other = ("_psirp._tcp 300 IN SRV 0 1 7002 other", "other 300 IN A 127.0.0.1")
    with embedded(tmp_path, zones(7001, *other)) as server:
        run(main(server))


def test_siblings_are_the_other_psphs_of_the_domain(tmp_path):
    async def main(server):
        async with Resolver([server.address]) as resolver:
            first, second = "http://psph.site-a.test:7001", "http://other.site-a.test:7002"
            ask = SiblingHubs(resolver, "site-a.test", "psph.Site-A.test.:7001")
            assert await ask() == [second]
            # One that is not in DNS itself.
            assert set(await SiblingHubs(resolver, "site-a.test", None)()) == {first, second}
            assert await SiblingHubs(resolver, "site-c.test", None)() == []

    other = ("_psirp._tcp 300 IN SRV 0 1 7002 other", "other 300 IN A 127.0.0.1")
    with embedded(tmp_path, zones(7001, *other)) as server:
        run(main(server))


class Beside:
    """A hub beside a PSPH, both processes, and a callback at that hub."""

    def __init__(self, psph_data, hub, reader, client):
        self.token = (psph_data / "admin-token").read_text().strip()
        self.hub, self.reader, self.client = hub, reader, client

    async def subscribe(self):
        """Returns when the hub has confirmed the callback."""
        form = {
            "hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": f"{self.reader.url}/cb",
            "hub.verify": "sync",
        }  # fmt: skip
        async with self.client.post(f"{self.hub}/hub", data=form) as answer:
            assert answer.status == 204, await answer.text()

    async def publish(self, psph, *bodies):
        for body in bodies:
            async with self.client.post(
                f"{psph}/publish", params={"topic": TOPIC}, data=body,
                headers={"Authorization": f"Bearer {self.token}", "Content-Type": "text/plain"},
            ) as answer:  # fmt: skip
                assert answer.status == 201, await answer.text()
                yield (await answer.json())["position"], body

    async def words(self):
        """How the hub says that it follows the topic."""
        params = {"url": TOPIC, "format": "json"}
        async with self.client.get(f"{self.hub}/topics", params=params) as answer:
            return (await answer.json()).get("watched", [])

    async def receives(self, *published):
        """Nothing else, and each version once, in order, with the Position of its origin."""
        await until(lambda: len(self.reader.received) >= len(published), "the updates")
        found = [(each.headers["X-Hub-Position"], each.body) for each in self.reader.received]
        assert found == list(published)


@asynccontextmanager
async def beside(directory, port):
    """A hub whose domain has a PSPH at that port."""
    reader, app = Reader(), web.Application()
    app.router.add_get("/{path:.*}", reader.get)
    app.router.add_post("/{path:.*}", reader.post)
    (directory / "psph").mkdir(exist_ok=True)
    admin_token.keep(directory / "psph")
    with (
        embedded(directory, zones(port)) as server,
        running_hub(directory / "hub", "--domain", "site-a.test", "--dns", server.address) as hub,
    ):
        # A connection for each request: that to a PSPH which was killed is of no use.
        connector = aiohttp.TCPConnector(force_close=True)
        async with served(app) as reader.url, aiohttp.ClientSession(connector=connector) as client:
            yield Beside(directory / "psph", hub, reader, client)


def test_what_is_published_right_after_a_confirmation_arrives(tmp_path):
    async def main():
        port = free_port()
        with running_hub(tmp_path / "psph", port=port) as psph:
            async with beside(tmp_path, port) as world:
                # What was there before is pushed to no callback.
                assert [each async for each in world.publish(psph, b"before")]
                await world.subscribe()
                await world.receives(*[each async for each in world.publish(psph, b"1", b"2")])

    run(main())


def test_what_is_published_while_the_psph_restarts_arrives_once(tmp_path):
    async def main():
        port = free_port()
        async with beside(tmp_path, port) as world:
            with running_hub(tmp_path / "psph", port=port, end=subprocess.Popen.kill) as psph:
                await world.subscribe()
                published = [each async for each in world.publish(psph, b"1")]
                await world.receives(*published)
                # In flight, perhaps, when it is killed.
                published += [each async for each in world.publish(psph, b"2", b"3")]
            with running_hub(tmp_path / "psph", port=port) as psph:
                published += [each async for each in world.publish(psph, b"4", b"5")]
                await world.receives(*published)

    run(main())


def test_a_psph_that_is_down_at_the_subscription_is_followed_when_it_is_back(tmp_path):
    async def main():
        port = free_port()
        async with beside(tmp_path, port) as world:
            subscribed = asyncio.create_task(world.subscribe())

            async def is_said():
                words = await world.words()
                return words and "has not answered yet" in words[0] and "cannot connect" in words[0]

            await until_async(is_said, "what is wrong")
            assert not world.reader.verifications
            with running_hub(tmp_path / "psph", port=port) as psph:
                # It need not wait until the time for an answer is up.
                await subscribed
                assert (await world.words())[0].startswith(
                    f"carried here: the hub of our domain, by stream: http://psph.site-a.test:{port}"
                )
                await world.receives(*[each async for each in world.publish(psph, b"1")])

    run(main())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--dns", "127.0.0.1:53"), "--dns is for --domain"),
        (("--domain", "site-a.test", "--dns", "a:b:c:0"), "--dns:"),
        (("--domain", "no domain"), "no domain"),
    ],
)
def test_wrong_options_get_one_clear_line(tmp_path, options, line):
    ended = CliRunner().invoke(hub_command, ["--data", str(tmp_path / "hub"), *options])
    assert ended.exit_code == 2
    assert line in ended.output
