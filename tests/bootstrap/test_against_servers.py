"""The same promises against every name server: the embedded one, BIND, and whoever comes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace

import pytest

from bootstrap import NothingFound, Resolver
from bootstrap.errors import NameServerFailed, Refused, WrongKey
from bootstrap.records import ANNOUNCEMENT, PROXY, Announcement
from bootstrap.registration import Registrar, TsigKey, learn_hosts
from bootstrap.registration.settings import Target
from tests.bootstrap.name_servers import RECORDS, SERVERS
from tests.bootstrap.name_servers import TsigKey as ServerKey
from tests.bootstrap.registering import (
    Lines,
    Zone,
    is_registered,
    key_of,
    registered,
    run,
    settings_for,
    until,
)
from tests.ports import free_port

ZONES = {
    "site-a.test": (
        *RECORDS,
        "psph1 300 IN A 127.0.0.1",
        "psph2 300 IN A 127.0.0.1",
        "www 300 IN CNAME news",
        "six 300 IN AAAA ::1",
        "* 300 IN A 127.0.0.1",
        "_service 300 IN CNAME news",
        "text 300 IN TXT hello",
        "sub 300 IN NS ns.sub",
        "ns.sub 300 IN A 127.0.0.1",
    ),
    "site-b.test": (*RECORDS, "rv 300 IN A 127.0.0.1"),
}
OLD, NEW, OTHER = b"\1" * 32, b"\2" * 32, b"\3" * 32
STRANGER = TsigKey("nobody-knows-it", b"a secret of thirty-two bytes yes")


@pytest.fixture(params=sorted(SERVERS))
def start(request, tmp_path):
    """Starts a server with these or other zones; what runs at the end is stopped."""
    running = []

    def begin(zones=ZONES, **more):
        running.append(SERVERS[request.param](tmp_path, zones, **more))
        return running[-1]

    yield begin
    for each in running:
        each.stop()


@pytest.fixture
def server(start):
    return start()


def trouble(registrar, zone="site-a.test"):
    return registrar.state[zone].trouble or ""


def test_a_psph_is_found_while_it_runs_and_no_longer(server):
    async def main():
        zone = Zone(server)
        assert await zone.proxies() == []
        async with registered(settings_for(server, zone_keys=(OLD,))) as registrar:
            assert await zone.services() == ["0 10 8080 psph1.site-a.test."]
            assert await zone.announcements() == [Announcement.of_zone("site-a.test", OLD)]
            async with Resolver([server.address]) as resolver:
                found = await resolver.find("http://news.site-a.test/feed.xml")
            assert found.zone == "site-a.test"
            (proxy,) = found.proxies
            assert (proxy.host, proxy.port) == ("psph1.site-a.test", 8080)
            assert proxy.addresses == ("127.0.0.1",)
            assert found.keys == (OLD,)
            assert found.problems == ()
            state = registrar.state["site-a.test"]
            assert state.last_success_ago is not None
            assert state.failures == 0
        assert await zone.proxies() == []
        # The announcement is the zone's, not the PSPH's.
        assert await zone.keys() == {OLD}

    run(main())


def test_nothing_registered_means_plain_websub(server):
    async def main():
        async with Resolver([server.address]) as resolver:
            with pytest.raises(NothingFound):
                await resolver.find("news.site-a.test")

    run(main())


def test_rendezvous_servers_come_and_go_with_their_node(server):
    async def main():
        zone = Zone(server)
        own = (Target("rv.site-b.test", 4000), Target("rv.site-b.test", 4001))
        async with registered(settings_for(server, rendezvous=own)):
            assert len(await zone.rendezvous()) == 2
            async with Resolver([server.address]) as resolver:
                found = await resolver.find("site-a.test")
            assert {(each.host, each.port) for each in found.rendezvous} == {
                ("rv.site-b.test", 4000),
                ("rv.site-b.test", 4001),
            }
        assert await zone.rendezvous() == []

    run(main())


def test_what_somebody_deleted_comes_back(server):
    async def main():
        zone = Zone(server)
        async with registered(settings_for(server, zone_keys=(OLD,))):
            await zone.change(
                delete=[(f"{PROXY}.site-a.test.", "SRV"), (f"{ANNOUNCEMENT}.site-a.test.", "TXT")]
            )
            # Nobody wakes the registrar: it comes by itself.
            await until(zone.proxies, "the SRV record is back")
            await until(zone.keys, "the TXT record is back")
            assert await zone.proxies() == ["psph1:8080"]
            assert await zone.keys() == {OLD}

    run(main())


def test_the_pause_ends_before_the_ttl_does(server):
    async def main():
        for ttl, longest in ((100, 40), (86_400, 900)):
            async with registered(settings_for(server, ttl=ttl)) as registrar:
                state = await until(lambda: _waiting(registrar), "the pause")
                assert 0.7 * longest < state.next_attempt_in <= longest
            # Or the next one would see the TTL of this one.
            await Zone(server).change(delete=[(f"{ANNOUNCEMENT}.site-a.test.", "TXT")])

    run(main())


def _waiting(registrar):
    state = registrar.state["site-a.test"]
    return state if state.next_attempt_in > 0 else None


def test_what_is_true_is_not_written_again(server):
    async def main():
        zone, looks = Zone(server), []
        # The registrar asks for a random number whenever it has looked.
        settings = settings_for(server, zone_keys=(OLD,), rendezvous=(Target("rv.site-b.test", 1),))
        async with registered(settings, random=lambda: looks.append(0) or 0.5) as registrar:
            serial = await zone.serial()
            for _ in range(3):
                before = len(looks)
                registrar.refresh()
                await until(lambda before=before: len(looks) > before, "another look")
            assert registrar.state["site-a.test"].trouble is None
            assert await zone.serial() == serial

    run(main())


def test_records_of_before_are_brought_up_to_date(server):
    async def main():
        zone = Zone(server)
        name, other = f"{PROXY}.site-a.test.", f"{ANNOUNCEMENT}.site-a.test."
        old = replace(Announcement.of_zone("site-a.test", OLD), id_version="1-2001-01-01")
        await zone.change(
            add=[
                (name, 2, "SRV", "7 7 8080 psph1.site-a.test."),
                (name, 2, "SRV", "7 7 8080 psph2.site-a.test."),
                (other, 2, "TXT", old.rdata()),
                (other, 2, "TXT", '"v=spf1 -all"'),
            ]
        )
        async with registered(settings_for(server, zone_keys=(OLD,))):
            assert await zone.services() == [
                "0 10 8080 psph1.site-a.test.",
                "7 7 8080 psph2.site-a.test.",
            ]
            texts = await zone.ask(other, "TXT")
            new = Announcement.of_zone("site-a.test", OLD)
            assert sorted(texts) == sorted([new.rdata(), '"v=spf1 -all"'])

    run(main())


def test_two_psphs_of_one_zone(server):
    async def main():
        zone = Zone(server)
        async with registered(settings_for(server, zone_keys=(OLD,))) as first:
            async with registered(settings_for(server, "psph2", zone_keys=(OLD,))) as second:
                assert await zone.proxies() == ["psph1:8080", "psph2:8080"]
                assert len(await zone.announcements()) == 1
                assert second.state["site-a.test"].peers == ("psph1.site-a.test:8080",)
                first.refresh()
                await until(lambda: first.state["site-a.test"].peers)
            assert await zone.proxies() == ["psph1:8080"]
        assert await zone.proxies() == []
        assert await zone.keys() == {OLD}

    run(main())


def test_registering_at_the_same_time(server):
    async def main():
        zone = Zone(server)
        hosts = [f"psph{number}" for number in range(6)]
        registrars = [Registrar(settings_for(server, host, zone_keys=(OLD,))) for host in hosts]
        for each in registrars:
            await each.__aenter__()
        try:
            await until(lambda: all(map(is_registered, registrars)), "all are registered")
            assert await zone.proxies() == [f"{host}:8080" for host in hosts]
            assert len(await zone.announcements()) == 1
        finally:
            await asyncio.gather(*(each.__aexit__(None, None, None) for each in registrars))
        assert await zone.proxies() == []

    run(main())


def test_a_record_below_the_zone(server):
    """A host may have records of its own; the update is for the DNS zone it is in."""

    async def main():
        zone = Zone(server, "news.site-a.test")
        async with registered(settings_for(server, zones=("news.site-a.test",))):
            assert await zone.services() == ["0 10 8080 psph1.site-a.test."]
            assert await zone.announcements() == [Announcement.of_zone("site-a.test")]

    run(main())


def test_hosts_are_learned_by_transfer(server):
    async def main():
        key = key_of(server.key)
        hosts = await learn_hosts(server.nameserver, key, "site-a.test")
        assert hosts == (
            "news.site-a.test",
            "ns.site-a.test",
            "psph1.site-a.test",
            "psph2.site-a.test",
            "six.site-a.test",
            "www.site-a.test",
        )
        for unknown in (STRANGER, TsigKey(server.key.name, b"another secret, long enough")):
            with pytest.raises(WrongKey):
                await learn_hosts(server.nameserver, unknown, "site-a.test")
        with pytest.raises(Refused, match=r"refuses a transfer of site-a\.test"):
            await learn_hosts(server.nameserver, key_of(server.powerless), "site-a.test")
        with pytest.raises(NameServerFailed, match=r"elsewhere\.test"):
            await learn_hosts(server.nameserver, key, "elsewhere.test")

    run(main())


def test_a_zone_of_many_messages_is_transferred(start):
    async def main():
        hosts = [f"host-{number}-{'x' * 40} 300 IN A 127.0.0.1" for number in range(3_000)]
        server = start({"site-a.test": (*RECORDS, *hosts)})
        found = await learn_hosts(server.nameserver, key_of(server.key), "site-a.test")
        assert len(found) == 3_002

    run(main())


def test_zones_are_learned_and_followed(start):
    async def main():
        apex = (RECORDS[0], "@ 300 IN NS ns.one")
        hosts = (
            "ns.one 300 IN A 127.0.0.1",
            "www.one 300 IN A 127.0.0.1",
            "two 300 IN A 127.0.0.1",
        )
        server = start({"test": (*apex, *hosts)})
        whole = Zone(server, "test")
        settings = settings_for(server, "psph1.one", zones=(), learn=("test",))
        async with registered(settings) as registrar:
            assert set(registrar.state) == {"one.test", "two.test"}
            assert registrar.learning["test"].hosts == ("ns.one.test", "two.test", "www.one.test")
            assert await Zone(server, "two.test").services() == ["0 10 8080 psph1.one.test."]
            await whole.change(
                add=[("www.three.test.", 300, "A", "127.0.0.1")], delete=[("two.test.", "A")]
            )
            await until(
                lambda: set(registrar.state) == {"one.test", "three.test"}, "the zones are others"
            )
            await until(Zone(server, "three.test").services)
            await until(lambda: _none(Zone(server, "two.test").services()))
            assert await registrar.learn_hosts("test") == registrar.learning["test"].hosts
        assert await Zone(server, "one.test").services() == []
        assert await Zone(server, "three.test").services() == []

    run(main())


async def _none(services):
    return not await services


def test_a_refused_transfer_is_said_and_tried_again(server):
    async def main():
        lines = Lines()
        settings = settings_for(
            server, zones=(), learn=("site-a.test",), key=key_of(server.powerless)
        )
        async with Registrar(settings, log=lines.log) as registrar:
            await registrar.settled()
            state = registrar.learning["site-a.test"]
            assert "refuses a transfer of site-a.test" in state.trouble
            assert state.hosts is None
            assert registrar.state == {}
            await until(lambda: registrar.learning["site-a.test"].failures > 2)
        assert "refuses a transfer" in lines

    run(main())


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (STRANGER, "does not know the TSIG key nobody-knows-it"),
        (TsigKey("psph-key", b"not the secret of the server"), "another secret for the TSIG key"),
        (TsigKey("powerless-key", b"known, but it may do nothing here"), "refuses an update"),
    ],
)
def test_a_key_that_does_not_work_is_said_and_tried_again(server, key, said):
    async def main():
        lines = Lines()
        async with Registrar(settings_for(server, key=key), log=lines.log) as registrar:
            await registrar.settled()
            state = registrar.state["site-a.test"]
            assert said in state.trouble
            assert "\n" not in state.trouble
            assert not state.registered
            assert state.last_success_ago is None
            await until(lambda: registrar.state["site-a.test"].failures > 3, "more attempts")
        for secret in (key.text, key.secret.decode(), repr(key.secret)):
            assert secret not in lines
            assert secret not in repr((registrar.state, key))
        assert said in lines

    run(main())


def test_a_key_that_is_mended_works_without_a_restart(start):
    """The operator mends it at the server, which restarts with what it had."""

    async def main():
        secret = b"the secret that the PSPH has got"
        server = start(key=ServerKey("psph-key", b"a secret that was mistyped there"))
        settings = settings_for(server, key=TsigKey("psph-key", secret))
        async with Registrar(settings) as registrar:
            await until(lambda: "another secret" in trouble(registrar))
            await asyncio.to_thread(server.stop)
            server.key = ServerKey("psph-key", secret)
            await asyncio.to_thread(server.start)
            await until(lambda: is_registered(registrar), "registered")
            assert registrar.state["site-a.test"].failures == 0
            assert await Zone(server).proxies() == ["psph1:8080"]

    run(main())


def test_a_server_that_does_not_have_the_zone(server):
    async def main():
        settings = settings_for(server, zones=("site-a.test", "site-c.test"))
        async with Registrar(settings) as registrar:
            await registrar.settled()
            assert "does not serve site-c.test" in trouble(registrar, "site-c.test")
            # One zone does not hold up the other.
            await until(lambda: registrar.state["site-a.test"].registered)
            assert trouble(registrar) == ""

    run(main())


def test_a_server_that_is_down_at_the_start(server):
    async def main():
        await asyncio.to_thread(server.stop)
        async with Registrar(settings_for(server)) as registrar:
            await registrar.settled()
            state = registrar.state["site-a.test"]
            assert "cannot be reached" in state.trouble
            assert not state.registered
            await asyncio.to_thread(server.start)
            await until(lambda: is_registered(registrar), "registered")
        assert await Zone(server).proxies() == []

    run(main())


def test_a_server_that_goes_and_comes_back(server):
    async def main():
        zone = Zone(server)
        async with registered(settings_for(server, zone_keys=(OLD,))) as registrar:
            serial = await zone.serial()
            await asyncio.to_thread(server.stop)
            await until(lambda: trouble(registrar), "the trouble is noticed")
            # It was registered when it was last seen, and the trouble says since when not.
            assert registrar.state["site-a.test"].registered
            await asyncio.to_thread(server.start)
            await until(lambda: not trouble(registrar), "the trouble is over")
            # What the server acknowledged it still has.
            assert await zone.serial() == serial
            assert await zone.proxies() == ["psph1:8080"]
        assert await zone.proxies() == []

    run(main())


def test_leaving_does_not_wait_for_a_server_that_is_gone(server):
    async def main():
        lines = Lines()
        async with registered(settings_for(server), log=lines.log):
            await asyncio.to_thread(server.stop)
        assert "records.stay domains=site-a.test" in lines
        await asyncio.to_thread(server.start)
        assert await Zone(server).proxies() == ["psph1:8080"]

    run(main())


def test_a_key_is_replaced_step_by_step(server):
    async def main():
        zone = Zone(server)
        async with registered(settings_for(server, zone_keys=(OLD,))) as registrar:
            registrar.publish(NEW)

            async def keys(*wanted):
                return await zone.keys() == set(wanted)

            await until(lambda: keys(OLD, NEW), "both are published")
            async with Resolver([server.address]) as resolver:
                assert set((await resolver.find("site-a.test")).keys) == {OLD, NEW}
            with pytest.raises(ValueError, match="at most 2 keys"):
                registrar.publish(OTHER)
            registrar.retire(OLD)
            await until(lambda: keys(NEW), "the old one is gone")
        assert await zone.keys() == {NEW}

    run(main())


def test_an_old_key_stays_until_it_is_retired(server):
    async def main():
        zone = Zone(server)
        async with registered(settings_for(server)):
            assert await zone.keys() == {None}
        async with registered(settings_for(server, zone_keys=(OLD,))):
            assert await zone.keys() == {OLD}
        # A PSPH that knows of no key changes nothing about those of the zone.
        async with registered(settings_for(server)):
            assert await zone.keys() == {OLD}
        async with registered(settings_for(server, zone_keys=(NEW,))):
            assert await zone.keys() == {OLD, NEW}
        async with registered(settings_for(server, zone_keys=(OTHER,))) as registrar:
            assert await zone.keys() == {OLD, NEW}
            (note,) = registrar.state["site-a.test"].notes
            assert "already publishes 2 other zone keys" in note
        async with registered(settings_for(server, zone_keys=(NEW,), retired_keys=(OLD,))):
            assert await zone.keys() == {NEW}
        async with registered(settings_for(server, retired_keys=(NEW,))):
            assert await zone.keys() == {None}

    run(main())


async def _listening():
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    return listener, listener.sockets[0].getsockname()[1]


async def _leave_behind(server, port, host="psph2", priority=0):
    """The record of a PSPH that was killed."""
    record = f"{priority} 10 {port} {host}.{server.zone}."
    await Zone(server).change(add=[(f"{PROXY}.{server.zone}.", 2, "SRV", record)])


def test_a_dead_peer_is_taken_over_from_if_allowed(server):
    async def main():
        zone, lines = Zone(server), Lines()
        living, port = await _listening()
        dead = free_port()
        async with living:
            await _leave_behind(server, port)
            await _leave_behind(server, dead, "psph3")  # by the wildcard
            settings = settings_for(server, take_over_after=0.4)
            async with registered(settings, log=lines.log) as registrar:

                async def taken():
                    return await zone.proxies() == ["psph1:8080", f"psph2:{port}"]

                await until(taken, "the dead peer's record is gone")
                # Said once the answer has come, which is after the record went.
                said = f"peer.removed peer=psph3.site-a.test:{dead}"
                await until(lambda: said in lines, "the take-over is said")
                await until(
                    lambda: registrar.state["site-a.test"].peers == (f"psph2.site-a.test:{port}",)
                )
            assert await zone.proxies() == [f"psph2:{port}"]

    run(main())


def test_a_dead_peer_stays_unless_it_is_allowed(server):
    async def main():
        lines = Lines()
        dead = free_port()
        await _leave_behind(server, dead)
        async with registered(settings_for(server), log=lines.log) as registrar:
            await until(lambda: registrar.state["site-a.test"].peers)
            assert registrar._watching == {}
        assert await Zone(server).proxies() == [f"psph2:{dead}"]

    run(main())


def test_a_living_peer_is_never_removed(server):
    async def main():
        zone, looks = Zone(server), 0

        def look(_, writer):
            nonlocal looks
            looks += 1
            writer.close()

        listener = await asyncio.start_server(look, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener:
            await _leave_behind(server, port)
            async with registered(settings_for(server, take_over_after=0.2)):
                # Many times longer than a dead one would have been given.
                await until(lambda: looks > 20, "looks at the peer")
                assert f"psph2:{port}" in await zone.proxies()

    run(main())


def test_a_peer_that_changed_its_record_meanwhile_stays(server):
    """The removal holds for what was seen, and for nothing else."""
    from bootstrap.registration import planning
    from bootstrap.registration.updating import ChangedMeanwhile, update

    async def main():
        zone, dead = Zone(server), free_port()
        await _leave_behind(server, dead)
        async with registered(settings_for(server)) as registrar:
            keeper = registrar._keepers["site-a.test"]
            async with keeper.connection() as connection:
                seen = await keeper.proxies(connection)
                (peer,) = keeper.peers
                await _leave_behind(server, dead, "psph4")
                origin = await keeper.dns_zone(connection)
                change = planning.without("site-a.test", peer, seen)
                with pytest.raises(ChangedMeanwhile):
                    await update(connection, origin, change)
                assert f"psph2:{dead}" in await zone.proxies()
                change = planning.without("site-a.test", peer, await keeper.proxies(connection))
                await update(connection, origin, change)
                assert f"psph2:{dead}" not in await zone.proxies()

    run(main())


def test_what_is_killed_leaves_its_record_and_finds_it_again(server):
    program = (
        "import asyncio, sys\n"
        "from bootstrap.registration import Registrar, RegistrarSettings, TsigKey\n"
        "from bootstrap.registration.settings import Target\n"
        "async def main(host, port, name, secret):\n"
        "    settings = RegistrarSettings((host, int(port)), TsigKey.parse(name, secret),\n"
        "        Target('psph1.site-a.test', 8080), ('site-a.test',), ttl=2)\n"
        "    async with Registrar(settings) as registrar:\n"
        "        await registrar.settled()\n"
        "        print(registrar.state['site-a.test'].registered, flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )

    async def main():
        zone = Zone(server)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, server.host, str(server.port),
            server.key.name, server.key.base64, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"True\n"
        finally:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        assert await zone.proxies() == ["psph1:8080"]
        serial = await zone.serial()
        async with registered(settings_for(server)):
            assert await zone.serial() == serial
            assert await zone.proxies() == ["psph1:8080"]
        # It was its own, so it goes with it.
        assert await zone.proxies() == []

    run(main())
