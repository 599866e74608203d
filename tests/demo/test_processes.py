"""`psph up --processes`: each part is a process, and none outlives the world."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from tests.demo.up import PATIENCE, Reader, running, until

A = "site-a.test"


def parts(directory):
    """The processes that run a configuration in the directory, by the part's name."""
    found = {}
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            match = re.search(rf"{re.escape(str(directory))}/([\w-]+)\.toml", command.read_text())
        except OSError:
            continue  # it has just ended
        if match:
            found[match[1]] = int(command.parent.name)
    return found


def test_each_part_is_a_process_that_ends_with_the_world(tmp_path):
    directory = tmp_path / "data"

    async def main(url):
        async with Reader(url) as page:
            topic = page.topic(1)["url"]
            await page.wish(feeds=[{"domain": A, "topic": topic}])
            await until(lambda: page.of("update"))
            before = parts(directory)
            assert len(before) == 11, before
            path = "/api/network/nodes/n3"
            assert (await page.ask("POST", path, {"up": False}))[0] == 200
            await until(lambda: parts(directory).keys() == before.keys() - {"n3"})
            await page.publish(topic, "without n3")
            await until(lambda: "without n3" in page.titles())
            assert (await page.ask("POST", path, {"up": True}))[0] == 200
            assert parts(directory).keys() == before.keys()

    with running(directory, "--processes") as (line, process):
        asyncio.run(main(line.split()[1].rstrip("/")))
        # However it ends: nobody is told, and nobody may stay.
        process.kill()
        process.wait(30)
        deadline = time.monotonic() + PATIENCE
        while parts(directory) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert parts(directory) == {}
    for log in directory.glob("logs/*.log"):
        assert "Traceback" not in log.read_text(), log
