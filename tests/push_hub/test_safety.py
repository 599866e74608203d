"""What docs/threat-model.md says is done, tried: strangers that lie, stall, flood and inflate."""

import asyncio
import gzip
import logging
import socket
import time
from collections import Counter
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from identifiers import identify
from push_hub.addresses import AddressPolicy, client_key, parse_networks
from push_hub.connecting import guarded_session
from push_hub.errors import AddressRefused, FetchFailed, TooLarge
from push_hub.feeds import read_feed
from push_hub.fetching import fetch
from push_hub.housekeeping import forget
from push_hub.settings import Rate
from push_hub.store.records import Caps
from tests.push_hub.world import chosen, run, until, until_async, world

ONE = parse_networks(["127.0.0.1"])


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1",
     "169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.8", "198.18.0.1", "203.0.113.1",
     "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
     "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "100::1", "3fff::1",
     "2001:10::1", "192.88.99.1", "ff02::1", "ff0e::1", "2001:db8::1",
     "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::ffff:10.0.0.1", "::ffff:100.64.0.1",
     "::ffff:224.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1",
     "64:ff9b:1::8.8.8.8", "64:ff9b:1:7f00:0:100::", "2002:7f00:1::1", "2002:a00:1::1"],
)  # fmt: skip
def test_what_is_not_public_is_refused(address):
    with pytest.raises(AddressRefused):
        AddressPolicy((), "fetch", "--allow-fetch").check(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"],
)
def test_what_is_public_is_allowed(address):
    AddressPolicy((), "fetch", "--allow-fetch").check(address)


# The checked address is the one connected to


class Changing(AbstractResolver):
    """Another answer each time it is asked."""

    def __init__(self, *answers):
        self.answers = answers
        self.asked = 0

    async def resolve(self, host, port=0, family=socket.AF_INET):
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [{"hostname": host, "host": each, "port": port, "family": socket.AF_INET,
                 "proto": 0, "flags": 0} for each in answer]  # fmt: skip

    async def close(self):
        pass


class Place:
    """A server on every loopback address, that notes at which one it was reached."""

    def __init__(self, answer=None):
        self.reached = []
        self.answer = answer

    async def __aenter__(self):
        async def handle(request):
            self.reached.append(request.transport.get_extra_info("sockname")[0])
            if self.answer is not None:
                return await self.answer(request)
            return web.Response(text="hello", headers={"Connection": "close"})

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "0.0.0.0", 0)
        await site.start()
        self.port = self.runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self.runner.cleanup()


async def get(url, resolver=None, seconds=60.0, max_body=1000, allowed=ONE):
    policy = AddressPolicy(allowed, "fetch", "--allow-fetch")
    async with guarded_session(
        policy, connections=10, timeout=seconds, resolver=resolver
    ) as client:
        return await fetch(
            client, policy, url, etag=None, last_modified=None, user_agent="test",
            max_body=max_body, max_redirects=3,
        )  # fmt: skip


def test_a_name_that_changes_its_address_is_checked_each_time():
    async def main():
        resolver = Changing(["127.0.0.1"], ["127.0.0.2"], ["10.0.0.1"])
        policy = AddressPolicy(ONE, "fetch", "--allow-fetch")
        async with (
            Place() as place,
            guarded_session(policy, connections=10, timeout=5.0, resolver=resolver) as session,
        ):
            outcomes = []
            for _ in range(3):
                session.connector.clear_dns_cache()
                try:
                    async with session.get(f"http://rebinding.example:{place.port}/") as answer:
                        outcomes.append(answer.status)
                except aiohttp.ClientConnectorError as error:
                    outcomes.append(type(error.os_error))
            assert outcomes == [200, AddressRefused, AddressRefused]
            assert place.reached == ["127.0.0.1"]
            # One question for each connection: nothing is looked up a second time.
            assert resolver.asked == 3

    run(main())


def test_of_several_addresses_only_those_allowed_are_tried():
    async def main():
        resolver = Changing(["127.0.0.2", "10.0.0.1", "127.0.0.1"])
        async with Place() as place:
            found = await get(f"http://several.example:{place.port}/", resolver)
            assert found.body == b"hello"
            assert place.reached == ["127.0.0.1"]

    run(main())


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"])
def test_odd_spellings_of_this_machine_are_refused(host):
    async def main():
        async with Place() as place:
            with pytest.raises(FetchFailed):
                await get(f"http://{host}:{place.port}/", allowed=())
            assert place.reached == []

    run(main())


def test_redirects_by_name_are_checked():
    async def main():
        async def away(request):
            return web.Response(status=302, headers={"Location": f"http://inner.example:{port}/"})

        resolver = Changing(["127.0.0.1"], ["127.0.0.2"])
        async with Place(away) as place:
            port = place.port
            with pytest.raises(FetchFailed, match="not on the public internet"):
                await get(f"http://outer.example:{port}/", resolver)
            assert place.reached == ["127.0.0.1"]

    run(main())


# Time and size


async def raw_server(answer):
    """A server that answers with whatever it likes."""

    async def handle(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/secret-path"


def answered_by(answer, **limits):
    async def main():
        server, url = await raw_server(answer)
        began = time.monotonic()
        try:
            return await get(url, **limits)
        finally:
            server.close()
            assert time.monotonic() - began < 60

    return run(main())


def test_a_body_that_drips_is_given_up():
    async def drip(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)

    with pytest.raises(FetchFailed, match="timed out"):
        answered_by(drip, seconds=1.0)


def test_headers_that_drip_are_given_up():
    async def drip(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: y\r\n")
            await writer.drain()
            await asyncio.sleep(0.1)

    with pytest.raises(FetchFailed, match="timed out"):
        answered_by(drip, seconds=1.0)


def test_a_body_without_end_is_cut_off():
    sent = 0

    async def pour(writer):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            sent += 65_536
            await writer.drain()

    with pytest.raises(TooLarge):
        answered_by(pour, max_body=100_000)
    assert sent < 64 << 20


@pytest.mark.parametrize(
    "headers",
    [b"X: " + b"y" * (1 << 20) + b"\r\n", b"".join(b"X%d: y\r\n" % n for n in range(5000))],
)
def test_huge_headers_are_refused_and_told_without_the_url(headers):
    async def answer(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: 0\r\n\r\n")
        await writer.drain()

    with pytest.raises(FetchFailed) as failure:
        answered_by(answer)
    assert "secret-path" not in str(failure.value)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_inflates_is_cut_off(encoding):
    bomb = gzip.compress(bytes(50 << 20))

    async def answer(writer):
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(bomb)}"
        writer.write(f"{head}\r\n\r\n".encode() + bomb)
        await writer.drain()

    with pytest.raises(TooLarge):
        answered_by(answer, max_body=1 << 20)


def test_callbacks_that_answer_without_end_are_cut_off(tmp_path):
    async def main():
        sent = Counter()

        async def pour(request):
            response = web.StreamResponse()
            await response.prepare(request)
            if request.method == "GET" and "/echoes" in request.path:
                await response.write(request.query["hub.challenge"].encode())
                return response
            for _ in range(1000):
                await response.write(b"x" * 65_536)
                sent[request.method] += 65_536
            return response

        async with world(tmp_path) as w:
            w.reader.verify = w.reader.receive = pour
            topic = w.site.put("/t", b"1")
            await w.post(mode="subscribe", topic=topic, callback=w.reader.url + "/babbles")
            await until(lambda: w.hub.counters["verifications_failed"] == 1)
            await w.subscribe(topic, "/echoes")
            await w.ping(topic)
            await until(lambda: w.hub.counters["deliveries_delivered"] == 1)
            assert 0 < max(sent.values()) < 32 << 20

    run(main())


# XML

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha" * 10}">' for n in range(10))


@pytest.mark.parametrize(
    "declarations",
    [
        LAUGHS,
        '<!ENTITY l9 SYSTEM "file:///etc/passwd">',
        '<!ENTITY % more SYSTEM "http://127.0.0.1:1/x.dtd"> %more;',
        f'<!ENTITY l9 "{"a" * 50_000}">',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-7", "utf-16", "utf-16-le", "cp037"])
def test_entities_do_nothing(declarations, encoding):
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE rss [{declarations}]>'
        f'<rss version="2.0"><channel><item><title>{"&l9;" * 500}</title></item></channel></rss>'
    )
    documents = [text.encode(encoding)]
    # Only the declarations hidden, so that the rest is recognised.
    hidden = declarations.replace("<", "+ADw-").replace("!", "+ACE-")
    documents.append(text.replace(declarations, hidden).encode())
    for body in documents:
        for content_type in ("application/rss+xml", f"text/xml; charset={encoding}"):
            began = time.monotonic()
            feed = read_feed(content_type, body)
            assert time.monotonic() - began < 60  # what it would be to do it: for ever
            shown = repr(feed)
            assert "root:" not in shown
            assert len(shown) < 200_000


# What strangers send


def test_a_form_that_drips_is_given_up(tmp_path):
    async def main():
        async with world(tmp_path, body_timeout=0.5) as w:
            port = int(w.hub_url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /hub HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\nContent-Type: "
                         b"application/x-www-form-urlencoded\r\n\r\nhub.mode=")  # fmt: skip
            line = await asyncio.wait_for(reader.readline(), 60)
            assert b" 408 " in line
            writer.close()

    run(main())


def test_a_form_that_inflates_is_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            bomb = gzip.compress(b"hub.mode=" + b"x" * (50 << 20))
            headers = {
                "Content-Encoding": "gzip",
                "Content-Type": "application/x-www-form-urlencoded",
            }
            async with w.client.post(f"{w.hub_url}/hub", data=bomb, headers=headers) as answer:
                assert answer.status in (400, 413)

    run(main())


def test_a_host_that_does_not_confirm_is_not_asked_too_often(tmp_path):
    async def main():
        rate = Rate(per_second=0.001, burst=5)
        async with world(tmp_path, verification_rate=rate, unverified_per_host=20) as w:

            async def no(request):
                return web.Response(status=404)

            # A host that says yes is asked as often as it likes.
            for number in range(12):
                await w.subscribe("http://topic.example/", f"/willing/{number}")
            w.reader.verify = no
            before = len(w.reader.verifications)
            statuses = [
                (await w.post(mode="subscribe", topic="http://topic.example/",
                              callback=f"{w.reader.url}/victim/{number}"))[0]
                for number in range(40)
            ]  # fmt: skip
            await until(lambda: w.hub.counters["verifications_failed"] >= 5)
            await asyncio.sleep(0.3)
            assert len(w.reader.verifications) - before == 5
            assert set(statuses) == {202, 429}
            assert statuses.count(202) <= 5 + 20

    run(main())


def test_denials_are_not_sent_too_often(tmp_path):
    async def main():
        rate = Rate(per_second=0.001, burst=3)
        async with world(tmp_path, verification_rate=rate, topic_hosts=("ours.example",)) as w:
            for number in range(10):
                await w.post(mode="subscribe", topic="http://other.example/",
                             callback=f"{w.reader.url}/{number}")  # fmt: skip
            await until(lambda: w.hub.counters["denials_limited"] == 7)
            await until(lambda: len(w.reader.denials) == 3)

    run(main())


def test_requests_nobody_confirmed_do_not_fill_a_host(tmp_path):
    async def main():
        async with world(tmp_path, max_subscriptions_per_host=3) as w:

            async def no(request):
                return web.Response(status=404)

            w.reader.verify = no
            for number in range(3):
                await w.post(mode="subscribe", topic="http://topic.example/",
                             callback=f"{w.reader.url}/forged/{number}")  # fmt: skip
            await until(lambda: w.hub.counters["verifications_failed"] == 3)
            await until_async(w.settled, "verifications")
            w.reader.verify = None
            await w.subscribe("http://topic.example/", "/real")

    run(main())


def test_a_nearly_full_hub_forgets_what_nobody_needs(tmp_path):
    async def main():
        async with world(tmp_path, max_topics=10) as w:
            caps, now = Caps(10, 10, 10), w.hub.context.clock()
            # To the hub's own housekeeping, which runs meanwhile, the topics are new.
            later = replace(w.hub.context, clock=lambda: now + 3600)
            for number in range(10):
                topic = identify(f"http://flood.example/{number}")
                await w.hub.store.ensure_topic(topic, caps, now)
            await forget(later, w.hub.interest)
            assert (await w.hub.store.statistics()).topics == 0
            for number in range(7):  # not nearly full: these may be wanted again
                topic = identify(f"http://few.example/{number}")
                await w.hub.store.ensure_topic(topic, caps, now)
            await forget(later, w.hub.interest)
            assert (await w.hub.store.statistics()).topics == 7

    run(main())


def test_clients_are_limited_by_network():
    assert client_key("192.0.2.7") == "192.0.2.7"
    assert client_key("::ffff:192.0.2.7") == "192.0.2.7"
    assert client_key("2001:db8::1") == client_key("2001:db8::ffff:ffff") == "2001:db8::/64"
    assert client_key("2001:db8:0:1::1") != client_key("2001:db8::1")
    assert client_key("unix socket") == "unix socket"


def test_secrets_are_never_logged(tmp_path, caplog):
    from push_hub.settings import Publisher

    async def main():
        publishers = (Publisher("the-token", "http"),)
        async with world(tmp_path, publishers=publishers) as w:
            topic = w.site.put("/t", b"one")
            await w.subscribe(topic, "/cb/unguessable", secret="the-secret")

            async def fails(request):
                return web.Response(status=500 if len(w.reader.received) < 3 else 410)

            w.reader.receive = fails
            headers = {"Authorization": "Bearer the-token", "Content-Type": "text/plain"}
            for wrong in ("", "x"):
                async with w.client.post(
                    f"{w.hub_url}/publish", params={"topic": topic}, data=b"two",
                    headers={**headers, "Authorization": headers["Authorization"] + wrong},
                ) as answer:  # fmt: skip
                    assert answer.status == (401 if wrong else 201)
            await w.post(mode="subscribe", topic=topic, callback="http://127.0.0.1:1/unguessable",
                         secret="the-secret", verify_token="the-word")  # fmt: skip
            await until(lambda: w.hub.counters["deliveries_gone"] == 1)
            await until(lambda: w.hub.counters["verifications_failed"] == 1)
            return [each.query["hub.challenge"] for each in w.reader.verifications]

    with caplog.at_level(logging.DEBUG):
        challenges = run(main())
    kept = [record for record in caplog.records if record.name.startswith(("push_hub", "aiohttp"))]
    logged = " ".join(f"{record.getMessage()} {record.__dict__}" for record in kept)
    assert kept
    for secret in ("the-secret", "the-token", "the-word", "unguessable", *challenges):
        assert secret not in logged
    assert not any(record.exc_info for record in kept)


def test_settings_do_not_show_tokens():
    from push_hub.settings import Publisher

    assert "the-token" not in repr(chosen(publishers=(Publisher("the-token", "http"),)))


def test_serving_is_by_name(tmp_path):
    """An answer of the hub never repeats markup as such: it is text, and said to be."""

    async def main():
        async with world(tmp_path) as w:
            status, _ = await w.post(mode="<script>", topic="<script>")
            assert status == 400
            async with w.client.get(f"{w.hub_url}/hub") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")

    run(main())
