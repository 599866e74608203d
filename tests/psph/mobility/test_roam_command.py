"""`psph roam` and `psph mobility` as programs."""

from __future__ import annotations

import asyncio
import json

import pytest

from psph import cli
from tests.e2e.serving import PSPH
from tests.psph.mobility.places import TOPIC, give, places, until

HUB = ("--hub", "http://127.0.0.1:9")
NATIVE = f"psirp:{'5c' * 32}/{'ab' * 32}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TOPIC,), "--hub"),
        (HUB, "TOPIC"),
        (("no topic", *HUB), "TOPIC"),
        (("psirp:5c/ab", *HUB), "native topic"),
        ((NATIVE, NATIVE, *HUB), "named twice"),
        ((TOPIC, "--hub", "ftp://x.test"), "--hub"),
        ((TOPIC, TOPIC, *HUB), "named twice"),
        ((TOPIC, *HUB, "--every", "0"), "--every"),
        ((TOPIC, *HUB, "--state", "/no/such/directory/state"), "no directory"),
    ],
)
def test_bad_usage_is_one_line(capsys, arguments, words):
    assert cli.run(["roam", *arguments]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert words in error


def test_what_cannot_work_is_one_line_as_well(capsys, tmp_path):
    (tmp_path / "state").write_text("not a database, and long enough to be taken for one" * 20)
    for arguments, words in (
        (["roam", TOPIC, *HUB, "--state", str(tmp_path / "state")], "cannot be used for storage"),
        (["roam", TOPIC, *HUB, "--token-file", str(tmp_path / "missing")], "no admin token"),
        (["mobility", "status", "--node", "127.0.0.1:9"], "no answer"),
    ):
        assert cli.run(arguments) == 1
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert words in error


async def roam(*arguments):
    return await asyncio.create_subprocess_exec(
        *PSPH, "roam", TOPIC, *map(str, arguments), stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def line_with(stream, words):
    async with asyncio.timeout(60):
        while line := (await stream.readline()).decode():
            if words in line:
                return line
    raise AssertionError(f"it ended without {words!r}")


def test_it_goes_on_from_its_state_at_another_hub(tmp_path):
    async def main():
        async with places(tmp_path, 2) as (a, b):
            await give((a, b), 1)
            state = ("--state", tmp_path / "state", "--json")
            first = await roam("--hub", a.url, *state, "--count", 2)
            await line_with(first.stdout, "moved_in")
            await give((a, b), 2, 3, 4)
            out, _ = await first.communicate()
            assert first.returncode == 0
            said = [json.loads(line) for line in out.splitlines()]
            assert [each["body"] for each in said if each["event"] == "update"] == ["2", "3"]
            second = await roam("--hub", b.url, *state, "--count", 2, "--timeout", 2)
            out, error = await second.communicate()
            said = [json.loads(line) for line in out.splitlines()]
            assert [each["body"] for each in said if each["event"] == "update"] == ["4"]
            assert second.returncode == 1
            assert b"1 of 2 updates" in error

    asyncio.run(main())


def test_lines_on_standard_input_move_it(tmp_path):
    async def main():
        async with places(tmp_path, 2) as (a, b):
            await give((a, b), 1)
            process = await roam("--hub", a.url, "--hub", b.url)
            await line_with(process.stderr, f"live at {a.url}")
            process.stdin.write(b"what\nmove\n")
            assert "no command" in await line_with(process.stderr, "what")
            await line_with(process.stderr, f"live at {b.url}")
            process.stdin.write(b"out\n")
            await line_with(process.stderr, f"left {b.url}")
            await until(lambda: b.stays("away"))
            await give((a, b), 2)
            process.stdin.write(f"move {a.url}\n".encode())
            await line_with(process.stderr, f"live at {a.url}")
            assert " 2" in await line_with(process.stdout, TOPIC)
            process.stdin.write(b"quit\n")
            async with asyncio.timeout(60):
                assert await process.wait() == 0
            await process.communicate()

    asyncio.run(main())
