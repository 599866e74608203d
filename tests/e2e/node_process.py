"""A node in a process of its own, and how a test talks with it (`conversation`: the other end)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 120
"""Seconds until a test gives up; nothing is measured."""


class NodeProcess:
    """A process and the last thing it said."""

    module: str
    """What it runs, with name, port, roles and storage as arguments."""

    def __init__(self, name, roles="", storage="", port=0):
        """A node that is to be started again needs a port that nobody takes meanwhile."""
        self.name = name
        self.roles = roles
        self.storage = storage
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, name, str(port), roles, storage],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.last = {}
        self._reader = None

    def ready(self):
        self.port = json.loads(self.process.stdout.readline())["ready"]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # killed while it spoke
            self.said(json.loads(line))

    def said(self, what):
        self.last = what

    def tell(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(timeout=60)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        finally:
            self.process.kill()
            self.process.wait()
        if self._reader is not None:
            self._reader.join(timeout=60)
        self.process.stdout.close()


def eventually(condition, seconds=PATIENCE, say=lambda: ""):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it never came true: {say()}"
        time.sleep(0.05)
