"""The programs of docs/hub.md, run exactly as they are written."""

import asyncio
import shlex
import signal
import sys
from importlib import import_module

import aiohttp
import pytest

from identifiers import identify
from push_hub import Subscriber
from push_hub.lifecycle import State
from tests.ports import free_port
from tests.push_hub.examples import blocks, running, write_file
from tests.push_hub.feeds.documents import atom
from tests.push_hub.world import PATIENCE, run, until_async, world

ATOM = "application/atom+xml"


def command_lines():
    text = "".join(blocks("hub.md", "sh") + blocks("publishers.md", "sh")).replace("\\\n", " ")
    return sorted({line.strip() for line in text.splitlines() if line.startswith("psph ")})


@pytest.mark.parametrize("line", command_lines())
def test_commands_take_the_arguments_that_are_shown(line):
    _, name, *arguments = shlex.split(line, comments=True)
    command = getattr(import_module(f"psph.commands.{name.replace('-', '_')}"), name)
    command.make_context(name, arguments)


def feed(w, *entries):
    topic = f"{w.site.url}/feed"
    links = f'<{w.hub_url}/hub>; rel="hub", <{topic}>; rel="self"'
    w.site.put("/feed", atom(*entries), ATOM, Link=links)
    return topic


async def confirmed(w):
    async def one_is_active():
        records = await w.hub.store.subscriptions()
        return any(record.state is State.ACTIVE for record in records)

    await until_async(one_is_active, "the subscription")


def test_follow(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic = feed(w, ("a", "One"))
            program = write_file(tmp_path, "hub.md", "follow.py")
            async with running(sys.executable, program, topic, directory=tmp_path) as process:
                await confirmed(w)
                await w.ping(topic)
                line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
                assert line == b"One http://example.com/a\n"
                feed(w, ("b", "Two"), ("a", "One"))
                await w.ping(topic)
                line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
                assert line == b"Two http://example.com/b\n"
                process.send_signal(signal.SIGINT)
                await asyncio.wait_for(process.wait(), PATIENCE)

            async def unsubscribed():
                (record,) = await w.hub.store.subscriptions()
                return record.state is State.UNSUBSCRIBED

            await until_async(unsubscribed, "the end")

    run(main())


def test_reader(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            topic, port = feed(w, ("a", "One")), free_port()
            program = write_file(tmp_path, "hub.md", "reader.py")

            async def titles():
                async with w.client.get(f"http://127.0.0.1:{port}/") as answer:
                    return await answer.json()

            async with running(sys.executable, program, topic, port, directory=tmp_path):
                await confirmed(w)

                async def has_one():
                    return await titles() == ["One"]

                async def has_two():
                    return await titles() == ["Two", "One"]

                await until_async(has_one, "the current version")
                feed(w, ("b", "Two"), ("a", "One"))
                await w.ping(topic)
                await until_async(has_two, "the update")

    run(main())


def test_site(tmp_path):
    async def main():
        url = f"http://127.0.0.1:{free_port()}"
        (tmp_path / "data").mkdir()
        program = write_file(tmp_path, "hub.md", "site.py")
        arguments = (url, tmp_path / "data", "127.0.0.0/8")
        async with (
            running(sys.executable, program, *arguments, directory=tmp_path),
            aiohttp.ClientSession() as client,
        ):

            async def serves():
                try:
                    async with client.get(f"{url}/news") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await until_async(serves, "the site")
            async with Subscriber(f"{url}/news") as subscriber:
                assert subscriber.hub == f"{url}/websub/hub"

                async def stored():
                    query = {"url": f"{url}/news", "format": "json"}
                    async with client.get(f"{url}/websub/topics", params=query) as answer:
                        return answer.status == 200 and (await answer.json())["subscribers"] == 1

                await until_async(stored, "the subscription")
                async with client.post(f"{url}/news", data="fresh") as answer:
                    assert answer.status == 201
                update = await asyncio.wait_for(anext(subscriber), PATIENCE)
                assert update.content == b"fresh"

    run(main())


def test_bridge(tmp_path):
    async def main():
        source, readers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        program = write_file(tmp_path, "hub.md", "bridge.py")
        arguments = ("127.0.0.1", source, readers, "127.0.0.0/8")
        (tmp_path / "unused").mkdir()
        async with (
            world(tmp_path / "unused") as w,
            running(sys.executable, program, *arguments, directory=tmp_path),
        ):

            async def serves():
                try:
                    async with w.client.get(f"{readers}/healthz") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await until_async(serves, "the hubs")
            topic = w.site.put("/feed", b"1")
            form = {"hub.mode": "subscribe", "hub.topic": topic, "hub.verify": "sync"}
            form["hub.callback"] = f"{w.reader.url}/cb"
            async with w.client.post(f"{readers}/hub", data=form) as answer:
                assert answer.status == 204
            w.site.put("/feed", b"2")
            async with w.client.post(
                f"{source}/hub", data={"hub.mode": "publish", "hub.url": topic}
            ) as answer:
                assert answer.status == 204

            async def delivered():
                return [each.body for each in w.reader.received][-1:] == [b"2"]

            await until_async(delivered, "the update")
            assert len(w.site.fetches("/feed")) == 2
            async with w.client.get(
                f"{readers}/topics", params={"url": topic, "format": "json"}
            ) as answer:
                shown = await answer.json()
            assert shown["watched"] == ["carried here: a second hub, for 127.0.0.1"]
            async with w.client.get(
                f"{source}/topics", params={"url": topic, "format": "json"}
            ) as answer:
                there = await answer.json()
            assert [each["position"] for each in shown["versions"]] == [
                each["position"] for each in there["versions"]
            ]

    run(main())


def test_follow_hubs(tmp_path):
    async def main():
        topic = "http://example.com/feed"
        async with world(tmp_path) as w:
            program = write_file(tmp_path, "hub.md", "follow_hubs.py")
            nobody, hub = f"http://127.0.0.1:{free_port()}/hub", f"{w.hub_url}/hub"
            arguments = (program, topic, nobody, hub)
            async with running(sys.executable, *arguments, directory=tmp_path) as process:
                recorded = await w.hub.publish(identify(topic), "text/plain", b"12345")
                line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
                assert line.decode() == f"{recorded.update.position} 5\n"

    run(main())
