"""The guard over real HTTP: no URL, name or redirect leads the hub to a refused address."""

import socket

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from identifiers import identify
from push_hub.addresses import AddressPolicy, parse_networks
from push_hub.connecting import exact_url, guarded_session, reason_of
from push_hub.fetching import FetchRefused, fetch
from tests.push_hub.world import LOOPBACK, run, served, until, world


class Lying(AbstractResolver):
    """Answers every name with this address."""

    def __init__(self, address):
        self.address = address

    async def resolve(self, host, port=0, family=socket.AF_INET):
        return [{"hostname": host, "host": self.address, "port": port, "family": socket.AF_INET,
                 "proto": 0, "flags": 0}]  # fmt: skip

    async def close(self):
        pass


LIMITS = {"etag": None, "last_modified": None, "user_agent": "test", "max_body": 1000,
          "max_redirects": 3}  # fmt: skip


def fetching(url, resolver=None, allowed=()):
    policy = AddressPolicy(allowed, "fetch", "--allow-fetch")

    async def main():
        async with guarded_session(
            policy, connections=10, timeout=5.0, resolver=resolver
        ) as session:
            return await fetch(session, policy, url, **LIMITS)

    return main()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://[::1]:1/", "http://[::ffff:127.0.0.1]:1/",
            "http://169.254.169.254/latest/meta-data"],
)  # fmt: skip
def test_addresses_in_urls_are_refused(url):
    with pytest.raises(FetchRefused, match="--allow-fetch"):
        run(fetching(url))


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254"])
def test_names_that_resolve_to_refused_addresses_are_refused(address):
    with pytest.raises(Exception, match="not on the public internet"):
        run(fetching("http://innocent.example/", Lying(address)))


def test_redirects_are_checked_again():
    async def main():
        async def redirect(request):
            raise web.HTTPFound("http://127.0.0.2:1/secret")

        app = web.Application()
        app.router.add_get("/", redirect)
        async with served(app) as url:
            await fetching(url, allowed=parse_networks(["127.0.0.1"]))

    with pytest.raises(FetchRefused, match=r"127\.0\.0\.2"):
        run(main())


def test_redirects_to_other_schemes_are_refused():
    async def main():
        async def redirect(request):
            return web.Response(status=302, headers={"Location": "file:///etc/passwd"})

        app = web.Application()
        app.router.add_get("/", redirect)
        async with served(app) as url:
            await fetching(url, allowed=LOOPBACK)

    with pytest.raises(Exception, match="neither http nor https"):
        run(main())


def test_the_two_allow_lists_are_apart(tmp_path):
    async def main():
        async with world(tmp_path, allow_fetch=()) as w:
            topic = w.site.put("/t", b"internal")
            await w.subscribe(topic)
            await w.ping(topic)
            await until(lambda: w.hub.counters["fetch_failures"] == 1)
            record = await w.hub.store.topic(identify(topic))
            assert "--allow-fetch" in record.last_error
            assert w.site.requests == []

    run(main())


def test_a_refused_name_is_told_in_the_diagnostics():
    async def main():
        policy = AddressPolicy((), "delivery", "--allow-callback")
        async with guarded_session(
            policy, connections=1, timeout=5.0, resolver=Lying("10.0.0.1")
        ) as session:
            try:
                await session.post(exact_url("http://name.example/"))
            except Exception as error:
                return reason_of(error)

    assert "--allow-callback" in run(main())


def test_urls_are_used_as_they_are_spelled():
    assert str(exact_url("http://h/a%2fb?x=%41&y=[1]")) == "http://h/a%2fb?x=%41&y=[1]"
    assert str(exact_url("http://bücher.example/ü?ü")) == (
        "http://xn--bcher-kva.example/%C3%BC?%C3%BC"
    )
