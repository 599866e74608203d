"""One world for all tests that need one."""

from __future__ import annotations

import signal

import pytest

from tests.demo.up import running


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """The address of a world; tests leave it as they found it."""
    with running(tmp_path_factory.mktemp("world") / "data") as (line, process):
        yield line.split()[1].rstrip("/")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
