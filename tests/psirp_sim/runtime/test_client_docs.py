"""docs/client.md says what is so, and what it shows runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from psirp_sim.admission import Admission
from psirp_sim.node import FabricNode
from psirp_sim.publications.events import Update
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.settings import RendezvousSettings
from psirp_sim.runtime import client_errors
from psirp_sim.runtime.client import FabricClient
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.loopback import LoopbackFabric
from psirp_sim.runtime.udp import UdpNode
from psirp_sim.settings import FabricSettings
from psirp_sim.wire.publications import LARGEST_METADATA, MOST_METADATA
from psirp_sim.wire.sealing import FabricKeys

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "client.md").read_text()
PROGRAM, *FRAGMENTS, TEST = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SID, RID = b"s" * 32, b"r" * 32


def first_cells(title):
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, re.MULTILINE))


def test_the_program_runs_as_it_is_written(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 10
    settings = FabricSettings(
        keys=FabricKeys("our key"),
        link_seed=b"our seed",
        rendezvous=RendezvousSettings(settle=100 * MILLISECOND),
    )

    async def main():
        async with UdpNode("server", ("127.0.0.1", 0)) as node:
            roles = ["topology", "rendezvous"]
            core = node.run(lambda env: FabricNode(env, settings, roles=roles))
            node.accept_links(Admission(core, 8))
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(program), *map(str, node.address),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
                env={"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            return await asyncio.wait_for(process.communicate(), 120)

    out, err = asyncio.run(main())
    assert err == b""
    assert re.fullmatch(r"[0-9a-f]{32}\.\d+\.1 It works\.\n", out.decode())


@pytest.mark.parametrize("code", FRAGMENTS, ids=range(len(FRAGMENTS)))
def test_what_it_shows_runs(code):
    handled = asyncio.Event()

    async def handle(update):
        assert update.content == b"current"
        handled.set()
        return "enough"

    class Stored:
        position = None
        is_complete = False

        def add(self, content, position):
            self.is_complete = content == b"current"
            handled.set()

    async def main():
        async with asyncio.timeout(120), LoopbackFabric() as world:
            fabric, other = await world.client("alice"), await world.client("bob")
            publishes = "publish" in code
            first = await other.publish(SID, RID, b"before")
            await other.publish(SID, RID, b"current")
            stored = Stored()
            stored.position = first
            scope = {"fabric": fabric, "sid": SID, "rid": RID, "handle": handle, "stored": stored}
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            compiled = compile(code, "docs/client.md", "exec", flags)
            made = eval(compiled, scope | {"Update": Update})  # noqa: S307
            if inspect.isawaitable(made):
                await made
            if not publishes:
                await handled.wait()

    asyncio.run(main())


def test_the_test_runs_as_it_is_written(tmp_path):
    (tmp_path / "test_greeting.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "psirp_sim.testing", "-p", "no:cacheprovider",
         "--rootdir", str(tmp_path), "-W", "error", str(tmp_path)],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=150,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_limits_are_those_of_the_settings():
    defaults = PublicationSettings()
    for field, text in first_cells("Limits").items():
        value = getattr(defaults, field)
        assert text == (f"{value >> 20} MiB" if value >= 1 << 20 else str(value)), field
    assert f"{LARGEST_METADATA >> 10} KiB in {MOST_METADATA} entries" in PAGE


def test_the_errors_are_all_there():
    errors = [
        name
        for name, each in vars(client_errors).items()
        if inspect.isclass(each) and issubclass(each, client_errors.FabricError)
    ]
    assert sorted(first_cells("Errors")) == sorted(set(errors) - {"FabricError"})


def test_the_arguments_are_those_of_connect():
    section = PAGE[PAGE.index("| argument |") : PAGE.index("A program that has a node already")]
    documented = {
        name
        for row in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    parameters = set(inspect.signature(FabricClient.connect).parameters)
    assert documented | {"settings", "timeout"} <= parameters
