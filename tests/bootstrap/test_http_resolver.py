"""aiohttp with names that only a chosen name server knows."""

import asyncio
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from bootstrap import CacheBounds, LookupSettings
from bootstrap.http_resolver import ZoneResolver
from tests.bootstrap.name_servers import RECORDS, SERVERS, ZONE
from tests.bootstrap.scripted import scripted

PATIENT = LookupSettings(timeout=20, attempts=1, total=30)


class Rest(AbstractResolver):
    """Stands for the system's; remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.closed = False

    async def resolve(self, host, port=0, family=socket.AF_INET):
        self.asked.append(host)
        raise OSError(None, "asked the system")

    async def close(self):
        self.closed = True


@asynccontextmanager
async def site():
    """A site that says under which name it was asked."""

    async def answer(request):
        return web.Response(text=request.headers["Host"])

    app = web.Application()
    app.router.add_get("/feed.xml", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_topic_is_fetched_by_a_name_the_system_does_not_know(kind, tmp_path):
    async def main(server):
        resolver = ZoneResolver([ZONE], [server.address], settings=PATIENT)
        connector = aiohttp.TCPConnector(resolver=resolver)
        async with site() as port, aiohttp.ClientSession(connector=connector) as session:
            url = f"http://news.{ZONE}:{port}/feed.xml"
            async with session.get(url) as response:
                assert await response.text() == f"news.{ZONE}:{port}"
            with pytest.raises(aiohttp.ClientConnectorDNSError, match="has no address"):
                await session.get(f"http://gone.{ZONE}:{port}/feed.xml")
        await resolver.close()

    with SERVERS[kind](tmp_path, {ZONE: [*RECORDS, "www 300 IN CNAME news"]}) as server:
        asyncio.run(main(server))


def test_other_hosts_go_to_the_system():
    async def main():
        async with site() as port, scripted() as server:
            resolver = ZoneResolver([ZONE], [server.server])
            connector = aiohttp.TCPConnector(resolver=resolver, family=socket.AF_INET)
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(f"http://localhost:{port}/feed.xml") as response,
            ):
                assert response.status == 200
            assert server.questions == []
            await resolver.close()

    asyncio.run(main())


def test_which_hosts_lie_in_the_zones():
    resolver = ZoneResolver(["Site-A.test.", "bücher.test"], ["127.0.0.1:1"])
    for host in ("site-a.test", "SITE-A.test", "a.b.site-a.test.", "www.xn--bcher-kva.test"):
        assert resolver.serves(host)
    for host in ("test", "evil-site-a.test", "site-a.test.evil.test", "127.0.0.1", "", "a b"):
        assert not resolver.serves(host)


def test_families_aliases_and_what_is_kept():
    async def main():
        async with scripted() as server:
            server.put("hub.site-a.test", "A", "127.0.0.1", ttl=300)
            server.put("hub.site-a.test", "AAAA", "::1")
            server.put("www.site-a.test", "CNAME", "hub.site-a.test.")
            rest = Rest()
            resolver = ZoneResolver([ZONE], [server.server], rest=rest, settings=PATIENT)

            async def addresses(host, family):
                found = await resolver.resolve(host, 80, family)
                assert all(each["hostname"] == host for each in found)
                assert all(each["port"] == 80 for each in found)
                return [(each["host"], each["family"]) for each in found]

            v4, v6 = ("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)
            assert await addresses("www.site-a.test", socket.AF_INET) == [v4]
            assert await addresses("www.site-a.test", socket.AF_INET6) == [v6]
            assert await addresses("www.site-a.test", socket.AF_UNSPEC) == [v4, v6]
            assert await addresses("WWW.site-a.test", socket.AF_INET) == [v4]
            assert len(server.questions) == 2
            server.put("four.site-a.test", "A", "127.0.0.1")
            assert await addresses("four.site-a.test", socket.AF_UNSPEC) == [v4]
            with pytest.raises(OSError, match="has no address"):
                await addresses("four.site-a.test", socket.AF_INET6)
            with pytest.raises(OSError, match="asked the system"):
                await addresses("elsewhere.test", socket.AF_INET)
            assert rest.asked == ["elsewhere.test"]
            await resolver.close()
            assert rest.closed

    asyncio.run(main())


def test_a_name_server_that_fails():
    async def main():
        async with scripted() as server:
            server.put("hub.site-a.test", "A", "127.0.0.1", ttl=1)
            now = [0.0]
            resolver = ZoneResolver(
                [ZONE],
                [server.server],
                clock=lambda: now[0],
                bounds=CacheBounds(stale_for=100),
                settings=LookupSettings(timeout=0.1, attempts=1),
            )
            server.hook = lambda query, tcp: None
            with pytest.raises(OSError, match="gives no answer"):
                await resolver.resolve("hub.site-a.test")
            server.hook, now[0] = None, 10.0
            found = None
            for _ in range(300):  # until the machine is quick enough for the short time-out
                try:
                    found = await resolver.resolve("hub.site-a.test")
                    break
                except OSError:
                    now[0] += 10
            assert found
            server.hook = lambda query, tcp: None
            now[0] += 50
            assert await resolver.resolve("hub.site-a.test") == found
            await resolver.close()

    asyncio.run(main())


def test_it_needs_a_server():
    with pytest.raises(ValueError, match="at least one"):
        ZoneResolver([ZONE], [])
