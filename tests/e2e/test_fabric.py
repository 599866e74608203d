"""Eight processes on real sockets; one that carries the traffic is killed with -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#        n2 --- n4
#       /         \
#     n1 -- n3 --- n6 --- n7      n1 sends to n7 and n8; n5 hangs below n3 and n6
#       \         /  \
#        ... n5 ..    n8
LINKS = ["12", "13", "24", "46", "36", "35", "56", "67", "68", "78"]


class Node:
    """A process and the last thing it said."""

    def __init__(self, name, roles=""):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.fabric_process", name, "0", roles], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.port = json.loads(self.process.stdout.readline())["ready"]
        self.last = {"forwarded": 0, "heard": [0, 0], "sent": 0}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.last = json.loads(line)

    def tell(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self._reader.join(timeout=20)
        self.process.stdout.close()


def eventually(condition, seconds=40):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


@pytest.fixture
def nodes():
    made = {str(n): Node(f"n{n}", "topology" if n in (5, 8) else "") for n in range(1, 9)}
    for one, other in LINKS:
        made[one].tell(link=f"n{other}", port=made[other].port)
        made[other].tell(link=f"n{one}", port=made[one].port)
    for node in made.values():
        node.tell(start=True)
    yield made
    for node in made.values():
        node.close()


def forwarding(node, seconds=0.5):
    before = node.last["forwarded"]
    time.sleep(seconds)
    return node.last["forwarded"] - before


def test_traffic_resumes_after_kill_9_of_a_forwarding_node_on_the_tree(nodes):
    source, receivers = nodes["1"], [nodes["7"], nodes["8"]]
    source.tell(send_to=["n7", "n8"], every_ms=2)
    eventually(lambda: all(node.last["heard"][1] > 200 for node in receivers))
    # The shorter way is over n3; whoever carries the load now is killed under it.
    carrier = max((nodes["2"], nodes["3"]), key=forwarding)
    assert carrier is nodes["3"]
    carrier.kill()
    at_death = source.last["sent"]
    eventually(lambda: all(node.last["heard"][0] > at_death + 500 for node in receivers))
    assert forwarding(nodes["2"]) > 20, "around the dead node"
    # The topology manager goes as well: its standby keeps the fabric together.
    nodes["5"].kill()
    at_death = source.last["sent"]
    eventually(lambda: all(node.last["heard"][0] > at_death + 500 for node in receivers))
    heard = [node.last["heard"] for node in receivers]
    assert all(count <= highest for highest, count in heard), "nothing arrives twice"
