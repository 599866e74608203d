"""`psph serve` as a process of a test."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.node_process import PATIENCE, ROOT

PSPH = [sys.executable, "-c", "from psph.cli import main; main()"]


@dataclass
class Serving:
    """One `psph serve`, which may be killed and run again."""

    name: str
    directory: Path
    admin: int
    process: subprocess.Popen | None = None
    addresses: dict = field(default_factory=dict)

    def write(self, configuration):
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "node.toml").write_text(configuration)

    def launch(self):
        log = (self.directory / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [*PSPH, "serve", "--config", self.directory / "node.toml"],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def ready(self):
        """Until it says so."""
        assert self.process is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.5)[0]:
                line = self.process.stdout.readline().decode()
                assert line.startswith("ready "), f"{self.name}: {line}{self.log()}"
                return
        raise AssertionError(f"{self.name} is not ready: {self.log()}")

    def log(self):
        return (self.directory / "log").read_text()[-3_000:]

    def kill(self):
        self.end(signal.SIGKILL)

    def end(self, number=signal.SIGTERM):
        if self.process is None:
            return
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        try:
            self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None

    def ask(self, path):
        """What the admin port says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=20) as answer:
            return json.load(answer)
