"""`psph subscribe --domain` and with several `--hub`: by stream, from one hub to the next."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from identifiers import identify
from psph import cli
from psph.commands.subscribe import subscribe
from tests.bootstrap.name_servers import embedded
from tests.ports import free_port
from tests.psph.hub_process import command
from tests.push_hub.feeds.documents import atom
from tests.push_hub.test_streaming import X, Y, at, hub_in
from tests.push_hub.world import PATIENCE, run, until

TOPIC = "http://news.site-b.test/feed"
ATOM = "application/atom+xml"


def zones(*ports):
    """site-a.test has as many PSPHs, the first of them before the others."""
    records = [
        "@ 300 IN SOA ns hostmaster 1 3600 600 86400 5", "@ 300 IN NS ns", "ns 300 IN A 127.0.0.1",
    ]  # fmt: skip
    for n, port in enumerate(ports):
        records.append(f"_psirp._tcp 300 IN SRV {n} 1 {port} psph{n}")
        records.append(f"psph{n} 300 IN A 127.0.0.1")
    return {"site-a.test": tuple(records), "site-c.test": tuple(records[:3])}


@asynccontextmanager
async def subscribing(*arguments):
    process = await asyncio.create_subprocess_exec(
        *command("subscribe", TOPIC, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(stream):
    return (await asyncio.wait_for(stream.readline(), PATIENCE)).decode().rstrip("\n")


async def publish(hub, position, *entries):
    await hub.accept(identify(TOPIC), ATOM, atom(*entries), position=position, trace_id="ab" * 16)


def test_the_psphs_of_a_domain_one_after_the_other(tmp_path):
    async def main():
        async with hub_in(tmp_path / "b") as (second, there), AsyncExitStack() as stack:
            first, here = await stack.enter_async_context(hub_in(tmp_path / "a"))
            ports = [int(url.split(":")[2].split("/")[0]) for url in (first, second)]
            with embedded(tmp_path, zones(*ports)) as server:
                options = ("--domain", "site-a.test", "--dns", server.address)
                async with subscribing(*options, "--json", "--count", 3) as process:
                    named = [f"http://psph{n}.site-a.test:{ports[n]}/hub" for n in range(2)]
                    assert await line(process.stderr) == f"following at {named[0]}"
                    await publish(here, at(1), ("a", "One"))
                    shown = json.loads(await line(process.stdout))
                    assert (shown["topic"], shown["position"]) == (TOPIC, str(at(1)))
                    assert [each["title"] for each in shown["entries"]] == ["One"]
                    await publish(there, at(1), ("a", "One"))
                    await publish(there, at(2), ("b", "Two"), ("a", "One"))
                    await stack.aclose()
                    gone = f"the hub {named[0]} is gone (it ended the stream)"
                    assert await line(process.stderr) == f"{gone}, going on at {named[1]}"
                    shown = json.loads(await line(process.stdout))
                    assert shown["position"] == str(at(2))
                    # As a callback would have it: only what is new.
                    assert [each["title"] for each in shown["entries"]] == ["Two"]
                    await publish(there, at(1, Y), ("c", "Three"))
                    assert json.loads(await line(process.stdout))["position"] == str(at(1, Y))
                    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0

    run(main())


def test_hubs_in_the_order_given_after_positions(tmp_path):
    async def main():
        nobody = f"http://127.0.0.1:{free_port()}/hub"
        async with hub_in(tmp_path / "a") as (url, hub):
            for n in (1, 2, 4):
                await publish(hub, at(n), (str(n), f"Title {n}"))
            await publish(hub, at(1, Y), ("y", "Of another"))
            hubs = ("--hub", nobody, "--hub", url)
            after = ("--after", at(1), "--after", at(1, Y))
            async with subscribing(*hubs, *after, "--count", 2) as process:
                out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
                assert process.returncode == 0
                assert "Title 2" in out.decode()
                assert "Title 4" in out.decode()
                assert "Of another" not in out.decode()
                said = errors.decode().splitlines()
                assert said[0].startswith(f"the hub {nobody} cannot be used: cannot connect")
                assert said[1] == f"following at {url}"
                assert said[2].startswith(f"gap: versions between {at(2)} and {at(4)} ")
            async with subscribing(*hubs, "--after", at(3), "--json", "--count", 1) as process:
                assert json.loads(await line(process.stdout))["position"] == str(at(4))
            async with subscribing(*hubs, "--after", at(9, epoch=0), "--json") as process:
                reset = json.loads(await line(process.stdout))
                assert reset == {
                    "topic": TOPIC, "event": "reset", "after": str(at(9, epoch=0)),
                    "resumes": str(at(1, Y)),
                }  # fmt: skip
                await until(lambda: len(hub.streams) > 0, "the stream")
                process.terminate()
                assert await asyncio.wait_for(process.wait(), PATIENCE) == 130

    run(main())


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--domain", "site-a.test", "--hub", "http://h/hub"), 2, "leave out --hub"),
        (("--dns", "127.0.0.1:53"), 2, "--dns is for --domain"),
        (("--after", f"{X}.1.1"), 2, "--after is for streams"),
        (("--domain", "site-a.test", "--after", "x"), 2, "is not a position"),
        (("--domain", "no domain"), 2, "no domain"),
        (("--domain", "site-a.test", "--dns", "a:b:c:0"), 2, "--dns:"),
        (("--domain", "site-a.test", "--lease", "60"), 2, "for a callback"),
        (("--domain", "site-c.test", "--dns", "{dns}"), 1, "site-c.test"),
        (("--domain", "127.0.0.1"), 1, "only names have records"),
    ],
)
def test_errors_are_one_line(tmp_path, monkeypatch, capsys, options, code, words):
    monkeypatch.setattr(cli.DiscoveredCommands, "get_command", lambda *these: subscribe)
    with embedded(tmp_path, zones(1)) as server:
        arguments = [each.format(dns=server.address) for each in options]
        assert cli.run(["subscribe", TOPIC, *arguments]) == code
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1
