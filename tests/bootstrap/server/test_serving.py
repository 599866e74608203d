"""The server on real sockets: UDP, TCP, limits, logs, and one update after the other."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from contextlib import suppress
from ipaddress import ip_network

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.update
import dns.zone
import pytest

from bootstrap.server.serving import NameServer
from tests.bootstrap.name_servers import KEY, POWERLESS, TsigKey
from tests.bootstrap.server.core import LINES, ZONE
from tests.bootstrap.server.served import (
    PATIENCE,
    connection,
    framed,
    read_message,
    run,
    served,
    settings,
    tcp,
    udp,
    until,
)
from tests.ports import free_port

NEWS = dns.message.make_query(f"news.{ZONE}", "A")


def update(key=KEY):
    return dns.update.UpdateMessage(ZONE, keyring=key.dnspython)


def test_questions_over_udp_and_tcp(tmp_path):
    async def main():
        async with served(tmp_path) as server:
            for ask in (udp, tcp):
                answer = await ask(server, NEWS)
                assert answer.answer[0][0].address == "192.0.2.2"
            assert server.counters["question", "NOERROR"] == 2
            assert server.connections.open <= 1

    run(main())


def test_on_ipv6_beside_ipv4(tmp_path):
    async def main():
        async with served(tmp_path, listen=(("::1", 0),)) as server:
            assert (await udp(server, NEWS)).answer
            assert (await tcp(server, NEWS)).answer
            both = settings(listen=(("0.0.0.0", 0),))
            async with NameServer(both, tmp_path / "other.sqlite") as other:
                assert other.address != server.address
        port = free_port()
        async with served(tmp_path, listen=(("0.0.0.0", port), ("::", port))) as server:
            assert server.addresses == [("0.0.0.0", port), ("::", port)]

    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    run(main())


def test_a_port_in_use_is_an_error_and_leaves_nothing_open(tmp_path):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            refused = served(tmp_path, listen=(taken.getsockname(),))
            with pytest.raises(OSError, match="in use"):
                await refused.__aenter__()
        async with served(tmp_path) as server:
            assert (await udp(server, NEWS)).answer

    run(main())


def test_truncated_over_udp_then_whole_over_tcp(tmp_path):
    lines = [*LINES, *(f'big 300 IN TXT "{n:04d}{"x" * 200}"' for n in range(20))]

    async def main():
        async with served(tmp_path, lines=lines) as server:
            question = dns.message.make_query(f"big.{ZONE}", "TXT", use_edns=0, payload=4096)
            short = await udp(server, question)
            assert short.flags & dns.flags.TC
            host, port = server.address
            answer, by_tcp = await dns.asyncquery.udp_with_fallback(
                question, host, PATIENCE, port=port
            )
            assert by_tcp
            assert len(answer.answer[0]) == 20

    run(main())


def test_a_transfer_in_many_messages(tmp_path):
    lines = [*LINES, *(f'n{n} 60 IN TXT "{n}{"x" * 230}"' for n in range(1000))]

    async def main():
        async with served(tmp_path, lines=lines) as server:
            zone = dns.zone.Zone(ZONE)
            host, port = server.address
            request = dns.message.make_query(ZONE, "AXFR")
            request.use_tsig(KEY.dnspython)
            await dns.asyncquery.inbound_xfr(host, zone, request, port=port, timeout=PATIENCE)
            assert sum(1 for _ in zone.iterate_rdatas()) == len(lines)
            assert server.counters["transfer", "NOERROR"] == 1
            async with connection(server) as (reader, writer):
                writer.write(framed(request.to_wire()))
                writer.write(framed(NEWS.to_wire()))  # while the transfer runs
                count = 0
                while True:
                    message = dns.message.from_wire(await read_message(reader), keyring=False)
                    if message.id == NEWS.id:
                        break
                    count += 1
                assert count > 5

    run(main())


@pytest.mark.parametrize("ask", [udp, tcp])
def test_an_update_is_seen_at_once(tmp_path, ask, caplog):
    async def main():
        async with served(tmp_path) as server:
            change = update()
            change.add("new", 60, "A", "192.0.2.9")
            change.delete("news", "A")
            answer = await ask(server, change)
            assert answer.rcode() == dns.rcode.NOERROR
            assert answer.had_tsig
            assert (await udp(server, dns.message.make_query(f"new.{ZONE}", "A"))).answer
            assert server.counters["update", "NOERROR"] == 1
            assert server.zones()[0].serial == 2

    with caplog.at_level(logging.INFO):
        run(main())
    (line,) = [record.message for record in caplog.records if "update" in record.message]
    assert line.startswith(f"update.answered zone={ZONE} key={KEY.name} client=127.0.0.1:")
    assert line.endswith(f'"serial 2: added new.{ZONE} 60 A 192.0.2.9, removed news.{ZONE} A"')
    assert KEY.base64 not in caplog.text


def test_refusals_are_said_but_do_not_fill_the_log(tmp_path, caplog):
    async def main():
        async with served(tmp_path) as server:
            for key in (POWERLESS, TsigKey("nobody", KEY.secret)):
                change = update(key)
                change.add("new", 60, "A", "192.0.2.9")
                try:
                    answer = await udp(server, change)
                    assert answer.rcode() == dns.rcode.REFUSED
                except dns.tsig.PeerBadKey:
                    assert key is not POWERLESS
            denied = update()
            denied.present("missing")
            assert (await udp(server, denied)).rcode() == dns.rcode.NXDOMAIN
            unsigned = dns.update.UpdateMessage(ZONE)
            for _ in range(200):
                assert (await udp(server, unsigned)).rcode() == dns.rcode.REFUSED
            assert server.counters["update", "REFUSED"] == 201

    with caplog.at_level(logging.INFO):
        run(main())
    assert "request.refused client=127.0.0.1:" in caplog.text
    assert f'"update of {ZONE} by the key powerless-key: REFUSED"' in caplog.text
    assert '"update signed by the key nobody: BADKEY"' in caplog.text
    assert f"NXDOMAIN, missing.{ZONE}. ANY does not exist" in caplog.text
    assert caplog.text.count("by nobody") < 100


def test_updates_at_the_same_time_all_happen(tmp_path):
    async def main():
        async with served(tmp_path) as server:

            async def add(n):
                change = update()
                change.absent(f"n{n}")
                change.add(f"n{n}", 60, "A", "192.0.2.9")
                change.add("all", 60, "TXT", f'"{n}"')
                ask = tcp if n % 2 else udp
                assert (await ask(server, change)).rcode() == dns.rcode.NOERROR

            await asyncio.gather(*(add(n) for n in range(16)))
            assert server.zones()[0].serial == 17
            everything = await tcp(server, dns.message.make_query(f"all.{ZONE}", "TXT"))
            assert len(everything.answer[0]) == 16

    run(main())


def test_more_updates_than_may_wait_are_dropped(tmp_path):
    async def main():
        async with served(tmp_path, waiting_updates=1) as server:
            await server._writing.acquire()
            changes = []
            for n in range(3):
                change = update()
                change.add(f"n{n}", 60, "A", "192.0.2.9")
                changes.append(asyncio.create_task(udp(server, change)))
            await until(lambda: server.counters["update", "dropped"] == 2, "two were dropped")
            server._writing.release()
            done, pending = await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            assert (await done.pop()).rcode() == dns.rcode.NOERROR
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    run(main())


def test_what_cannot_be_kept_is_not_done(tmp_path, monkeypatch, caplog):
    async def main():
        async with served(tmp_path) as server:
            before = server.zones()[0]
            server._keeper._connection.execute("PRAGMA query_only = 1")
            change = update()
            change.add("new", 60, "A", "192.0.2.9")
            assert (await udp(server, change)).rcode() == dns.rcode.SERVFAIL
            assert server.zones()[0] is before
            server._keeper._connection.execute("PRAGMA query_only = 0")
            assert (await udp(server, change)).rcode() == dns.rcode.NOERROR

    run(main())
    assert "cannot keep the zones" in caplog.text


def test_many_questions_on_one_connection(tmp_path):
    async def main():
        async with served(tmp_path) as server, connection(server) as (reader, writer):
            for n in range(50):
                question = dns.message.make_query(f"news.{ZONE}", "A", id=n)
                writer.write(framed(question.to_wire()))
            for n in range(50):
                assert dns.message.from_wire(await read_message(reader)).id == n
            wire = framed(NEWS.to_wire())
            for at in range(len(wire)):  # byte by byte
                writer.write(wire[at : at + 1])
                await writer.drain()
            assert dns.message.from_wire(await read_message(reader)).id == NEWS.id

    run(main())


def test_connections_are_limited(tmp_path):
    async def main():
        async with served(tmp_path, connections=5, connections_per_client=3) as server:
            kept = [await asyncio.open_connection(*server.address) for _ in range(3)]
            await until(lambda: server.connections.open == 3, "three connections")
            async with connection(server) as (reader, _):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            await until(lambda: server.connections.refused == 1, "one refused")
            for reader, writer in kept:  # and those that were there go on
                writer.write(framed(NEWS.to_wire()))
                assert await read_message(reader)
                writer.close()
                await writer.wait_closed()
            await until(lambda: server.connections.open == 0, "all closed")
            assert (await tcp(server, NEWS)).answer

    run(main())


async def ask_on(reader, writer):
    while True:
        writer.write(framed(NEWS.to_wire()))
        await read_message(reader)


def test_idle_and_endless_connections_are_cut_off(tmp_path):
    async def main():
        async with (
            served(tmp_path, idle=0.1) as server,
            connection(server) as (reader, writer),
        ):
            writer.write(framed(NEWS.to_wire())[:-1])  # it never ends
            with suppress(ConnectionError):
                assert await reader.read() == b""
        async with (
            served(tmp_path, connection=0.1) as server,
            connection(server) as (reader, writer),
        ):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await ask_on(reader, writer)

    run(main())


def test_a_client_that_does_not_read_its_transfer_is_cut_off(tmp_path):
    lines = [*LINES, *(f'n{n} 60 IN TXT "{n}{"x" * 230}"' for n in range(500))]

    async def main():
        async with served(tmp_path, lines=lines, connection=0.3) as server:
            request = dns.message.make_query(ZONE, "AXFR")
            request.use_tsig(KEY.dnspython)
            with socket.create_connection(server.address) as client:
                client.sendall(framed(request.to_wire()) * 100)
                await until(lambda: server.counters["transfer", "NOERROR"], "it began")
                await until(lambda: server.connections.open == 0, "it was cut off")
            assert (await udp(server, NEWS)).answer

    run(main())


def test_stopping_ends_open_connections(tmp_path):
    async def main():
        async with served(tmp_path) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(framed(NEWS.to_wire()))
            await read_message(reader)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    run(main())


def test_answers_beyond_the_rate(tmp_path):
    async def main():
        limited = {"answers_per_second": 5, "unlimited": (ip_network("192.0.2.0/24"),)}
        async with served(tmp_path, **limited) as server:
            host, port = server.address
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.connect((host, port))
                client.setblocking(False)
                for _ in range(400):
                    client.send(NEWS.to_wire())
                    await asyncio.sleep(0)
                await until(
                    lambda: sum(server.counters.values()) == 400, "everything was looked at"
                )
                whole = short = 0
                while True:
                    try:
                        answer = dns.message.from_wire(client.recv(2000))
                    except BlockingIOError:
                        break
                    whole, short = whole + bool(answer.answer), short + (not answer.answer)
                    assert bool(answer.flags & dns.flags.TC) == (not answer.answer)
            assert 5 <= whole < 300
            assert short > 0
            assert server.counters["question", "drop"] > 0
            assert (await tcp(server, NEWS)).answer
            # Whoever signs is no stranger.
            change = update()
            change.add("new", 60, "A", "192.0.2.9")
            assert (await udp(server, change)).rcode() == dns.rcode.NOERROR

    run(main())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux lists them there")
def test_sockets_are_not_left_open(tmp_path):
    async def main():
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            async with served(tmp_path) as server:
                assert (await tcp(server, NEWS)).answer
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= before

    run(main())


def test_connections_that_were_just_accepted_are_closed_with_the_server(tmp_path):
    async def main():
        for turns in range(12):
            async with NameServer(settings(), tmp_path / "zones") as server:
                client = socket.create_connection(server.address)
                for _ in range(turns):
                    await asyncio.sleep(0)
            client.settimeout(PATIENCE)
            with suppress(ConnectionError):
                assert client.recv(1) == b""
            client.close()

    asyncio.run(main())
    gc.collect()  # a connection that was left open would say so now
