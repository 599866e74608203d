"""`psph hub --domain --dns`: topics of zones with a fabric are followed at the domain's PSPH."""

import asyncio
import json
import urllib.request

import pytest
from click.testing import CliRunner

from bootstrap import Announcement, Resolver
from identifiers import ID_VERSION, identify, scope_id
from psph.commands.hub import hub as hub_command
from psph.guide import DomainGuide, DomainHubs, SiblingHubs
from push_hub import create_app
from push_hub.app import HUB
from tests.bootstrap.name_servers import embedded
from tests.psph.hub_process import running_hub
from tests.push_hub.world import chosen, run, served, until

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
            first = await guide.hub_for(identify(TOPIC))
            assert first in ours
            # Topics are spread, each stays where it is until that fails.
            topics = [identify(f"{TOPIC}/{n}") for n in range(40)]
            spread = [await guide.hub_for(topic) for topic in topics]
            assert set(spread) == ours
            assert [await guide.hub_for(topic) for topic in topics] == spread
            other = DomainGuide(resolver, "site-a.test")
            assert [await other.hub_for(topic) for topic in topics] == spread
            guide.failed(first)
            guide.failed("http://nobody.test/hub")
            (second,) = ours - {first}
            assert await guide.hub_for(identify(TOPIC)) == second
            assert {await guide.hub_for(topic) for topic in topics} == {second}
            hubs = DomainHubs(resolver, "site-a.test", identify(TOPIC))
            assert await hubs() == [second, first]
            hubs.worked(first)
            assert await hubs() == [first, second]
            hubs.failed(first)
            assert await hubs() == [second, first]
            assert await guide.hub_for(identify("http://www.site-c.test/")) is None
            assert await guide.hub_for(identify("http://127.0.0.1/")) is None
            homeless = DomainGuide(resolver, "site-c.test")
            assert await homeless.hub_for(identify(TOPIC)) is None

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


def test_a_hub_follows_at_the_psph_of_its_domain(tmp_path):
    async def main():
        (tmp_path / "psph").mkdir()
        app = create_app(chosen(), tmp_path / "psph")
        async with served(app) as url:
            port = int(url.rpartition(":")[2])
            with (
                embedded(tmp_path, zones(port)) as server,
                running_hub(
                    tmp_path / "hub", "--domain", "site-a.test", "--dns", server.address
                ) as hub,
            ):
                reading = asyncio.to_thread(_events, f"{hub}/stream?topic={TOPIC}", 2)
                reading = asyncio.create_task(reading)
                there = app[HUB]
                await until(
                    lambda: there.counters["verifications_confirmed"] == 1, "the subscription"
                )
                positions = [
                    str((await there.publish(identify(TOPIC), "text/plain", body)).update.position)
                    for body in (b"1", b"2")
                ]
                assert [each["position"] for each in await reading] == positions

    run(main())


def _events(url, count):
    """So many events of a stream."""
    found = []
    with urllib.request.urlopen(url, timeout=30) as stream:
        while len(found) < count:
            line = stream.readline()
            assert line
            if line.startswith(b"data:"):
                found.append(json.loads(line[5:]))
    return found


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
