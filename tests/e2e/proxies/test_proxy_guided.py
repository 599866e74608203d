"""A hub of its own in a domain that has a PSPH follows topics of other zones there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from tests.e2e.domains import PSPH
from tests.e2e.node_process import PATIENCE
from tests.e2e.proxies.around import run, until
from tests.e2e.proxies.names import A, B


@asynccontextmanager
async def hub_alone(world, directory, *options):
    """`psph hub`: knows its domain and a name server, and nothing of a fabric."""
    log = (directory / "log").open("ab")
    with log:
        process = await asyncio.create_subprocess_exec(
            *PSPH, "hub", "--listen", "127.0.0.1:0", "--data", directory / "data",
            "--domain", A, "--dns", f"127.0.0.1:{world.dns_port}",
            "--allow-fetch", "127.0.0.0/8", "--allow-callback", "127.0.0.0/8", *options,
            stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("ready http://"), (directory / "log").read_text()
        yield line.split()[1].rstrip("/")
    finally:
        process.terminate()
        await process.communicate()


def test_a_hub_alone_follows_another_domain_through_the_psph_of_its_own(world, tmp_path):
    async def story(around):
        topic, reader = f"http://news.{B}/guided", around.callback("guided")
        async with hub_alone(world, tmp_path) as hub:
            # Confirmed means that nothing is missed: no browser helps, and nothing is waited for.
            await around.subscribe(hub, topic, reader)
            positions = [await around.publish(B, topic, body) for body in (b"one", b"two")]
            await until(
                lambda: len(reader.posts) >= 2, lambda: (tmp_path / "log").read_text()[-2_000:]
            )
            assert reader.bodies == [b"one", b"two"]
            assert [post.position for post in reader.posts] == positions

    run(world, story)
