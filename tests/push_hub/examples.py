"""Running what the documentation shows, exactly as it is written but for names of hosts."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from tests.psph.hub_process import START

ROOT = Path(__file__).parents[2]


def blocks(page, language):
    """The code blocks of a page."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def block(page, language, having):
    """The one block that has a text in it."""
    (found,) = [each for each in blocks(page, language) if having in each]
    return found


def write_file(directory, page, name, names=None):
    """A file whose block begins with a comment that is its name; hosts are replaced."""
    text = block(page, "python", f"# {name}\n")
    assert text.startswith(f"# {name}\n")
    (directory / name).write_text(replaced(text, names or {}))
    return directory / name


def replaced(text, names):
    """The text with other names in it."""
    for old, new in names.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def environment(directory, **more):
    """With these sources, and a `psph` that is made of them."""
    tools = directory / "bin"
    if not tools.exists():
        tools.mkdir()
        (tools / "start.py").write_text(START)
        (tools / "psph").write_text(f'#!/bin/sh\nexec {sys.executable} {tools}/start.py "$@"\n')
        (tools / "psph").chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **more}


@asynccontextmanager
async def running(*command, directory, **more):
    """A process, ended at the end."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=directory, env=environment(directory, **more),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()  # not kill(): nginx has a worker that would stay
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        sys.stderr.write(errors.decode(errors="replace"))


async def shell(script, directory):
    """Run a block of shell."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-ec", script, cwd=directory, env=environment(directory),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, out.decode()
    return out.decode()
