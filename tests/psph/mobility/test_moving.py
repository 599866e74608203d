"""When a client moves, and where to; the host's monitor."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from psph.mobility.monitor import HostMonitor, Speeds, network_state
from psph.mobility.moving import Mover
from psph.mobility.roamer import HubUnusable
from tests.psph.mobility.places import Relay, give, places, until
from tests.psph.mobility.test_moves import Reader

ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0100A8C0 0003 0 0 100 00000000 0 0 0
eth0 0000A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0
"""
TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 192.168.0.7
        /32 host LOCAL
     |-- 192.168.0.255
        /32 link BROADCAST
"""
SIX = """20010db8000000000000000000000007 02 40 00 80 eth0
fe800000000000000000000000000007 02 40 20 80 eth0
"""


@asynccontextmanager
async def moving(reader, hubs, **options):
    mover = Mover(reader, hubs, **options)
    reader._lost = mover.lost
    task = asyncio.create_task(mover.run())
    try:
        yield mover
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_client_moves_by_the_clock_and_by_command(tmp_path):
    async def main():
        async with places(tmp_path, 2) as (a, b), Reader() as reader:
            await give((a, b), 1)
            async with moving(reader, [a.url, b.url], every=0.3):
                await until(lambda: len(reader.notices) >= 6)
            left = [each.proxy for each in reader.notices if type(each).__name__ == "MovedOut"]
            assert left[:2] == [a.url, b.url]
            async with moving(reader, [a.url, b.url]) as mover:
                await reader.live()
                mover.move(b.url)
                await until(lambda: reader.hub == b.url)
                mover.leave()
                await until(lambda: reader.stage == "detached")
                mover.move(a.url)
                await until(lambda: reader.hub == a.url and reader.stage == "live")

    asyncio.run(main())


def test_a_client_whose_hub_dies_goes_to_the_next_that_answers(tmp_path):
    async def main():
        words = []
        nobody = "http://127.0.0.1:9"
        async with places(tmp_path, 2) as (a, b), Reader() as reader:
            await give((a, b), 1)
            hubs = [a.url, nobody, b.url]
            async with moving(reader, hubs, told=words.append):
                await until(lambda: reader.stage == "live")
                a.proxy.sessions.close()  # as when the process ends
                await until(lambda: reader.hub == b.url and reader.stage == "live")
                await give((a, b), 2)
                await until(lambda: reader.seen == [2])
        assert any(nobody in each and "does not answer" in each for each in words)
        assert any("the hub is gone" in each for each in words)

    asyncio.run(main())


def test_while_no_hub_answers_a_client_waits_and_runs_up_no_debts(tmp_path):
    async def main():
        words = []
        async with places(tmp_path, 1) as (a,), Reader() as reader:
            await give((a,), 1)
            async with moving(reader, [a.url], told=words.append):
                await until(lambda: reader.stage == "live")
                async with a.stopped():
                    await until(lambda: sum("does not answer" in each for each in words) >= 3)
                    assert len(reader.client.debts) <= 2
                await until(lambda: reader.stage == "live")
                await give((a,), 2)
                await until(lambda: reader.seen == [2])

    asyncio.run(main())


def test_the_monitor_moves_a_client_when_the_network_changes(tmp_path):
    async def main():
        network, words = [frozenset({"192.0.2.1"})], []
        async with places(tmp_path, 2) as (a, b), Reader() as reader:
            await give((a, b), 1)
            async with moving(
                reader, [a.url, b.url], monitor=0.05, network=lambda: network[0], told=words.append
            ):
                await until(lambda: reader.stage == "live")
                network[0] = frozenset({"192.0.2.2"})
                await until(lambda: any("the network changed" in each for each in words))
                await until(lambda: reader.stage == "live")
                await give((a, b), 2)
                await until(lambda: reader.seen == [2])
        (why,) = [each for each in words if "the network changed" in each]
        assert "192.0.2.1 is gone, 192.0.2.2 is new" in why

    asyncio.run(main())


def test_the_monitor_moves_a_client_to_a_hub_that_answers_faster(tmp_path):
    async def main():
        words = []
        async with (
            places(tmp_path, 2) as (a, b),
            Relay(a.port, delay=0.3) as slow,
            Reader() as reader,
        ):
            await give((a, b), 1)
            async with moving(reader, [slow.url, b.url], monitor=0.05, told=words.append):
                await until(lambda: reader.hub == b.url and reader.stage == "live")
                await give((a, b), 2)
                await until(lambda: reader.seen == [2])
        assert any(each.endswith("it answers faster") for each in words)

    asyncio.run(main())


def test_a_hub_that_is_clearly_faster_is_better():
    speeds = Speeds()
    for _ in range(3):
        speeds.answered("slow", 0.3)
        assert speeds.better("slow") is None
        speeds.answered("fast", 0.05)
    assert speeds.better("slow") == "fast"
    assert speeds.better("fast") is None
    assert speeds.order(["unknown", "slow", "fast"]) == ["fast", "slow", "unknown"]
    speeds.failed("fast")
    assert speeds.better("slow") is None
    for _ in range(9):
        speeds.answered("fast", 0.29)
    assert speeds.better("slow") is None


def test_the_network_is_read_as_the_system_shows_it(tmp_path):
    for name, text in (("route", ROUTES), ("trie", TRIE), ("six", SIX)):
        (tmp_path / name).write_text(text)
    state = network_state(*(tmp_path / name for name in ("route", "trie", "six")))
    assert state == {"default eth0 0100A8C0", "192.168.0.7", "2001:db8::7"}
    assert network_state(*[tmp_path / "missing"] * 3) == frozenset()
    assert "127.0.0.1" in network_state()


def test_a_monitor_notes_who_answers():
    async def main():
        async def ask(hub):
            if hub == "dead":
                raise HubUnusable("dead")

        monitor = HostMonitor(["alive", "dead"], ask, print, every=0.01)
        task = asyncio.create_task(monitor.run())
        await until(lambda: "alive" in monitor.speeds._seconds)
        task.cancel()
        assert monitor.speeds.order(["dead", "alive"]) == ["alive", "dead"]

    asyncio.run(main())
