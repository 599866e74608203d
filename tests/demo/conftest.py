"""One world for all tests that need one."""

from __future__ import annotations

import signal
import time

import pytest

from tests.demo.up import running


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """The address of a world; tests leave it as they found it."""
    with running(tmp_path_factory.mktemp("world") / "data") as (line, process):
        yield line.split()[1].rstrip("/")
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        # Within 3 seconds on a machine that does nothing else; tests share theirs.
        assert time.monotonic() - begun < 15
        assert process.stderr.read() == ""
