"""Eight processes on real sockets; one that carries the traffic is killed with -9."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

import pytest

from tests.e2e import fabric_process
from tests.e2e.node_process import NodeProcess, eventually

#        n2 --- n4
#       /         \
#     n1 -- n3 --- n6 --- n7      n1 sends to n7 and n8; n5 hangs below n3 and n6
#       \         /  \
#        ... n5 ..    n8
LINKS = ["12", "13", "24", "46", "36", "35", "56", "67", "68", "78"]


class Node(NodeProcess):
    module = fabric_process.__name__

    @property
    def forwarded(self):
        return self.last.get("forwarded", 0)

    @property
    def sent(self):
        return self.last.get("sent", 0)

    @property
    def heard(self):
        """The highest number that came, and how many did."""
        return self.last.get("heard", (0, 0))


@contextmanager
def running(numbers, managers, links):
    made = {n: Node(f"n{n}", "topology" if n in managers else "") for n in numbers}
    try:
        for node in made.values():
            node.ready()
        for one, other in links:
            made[one].tell(link=f"n{other}", port=made[other].port)
            made[other].tell(link=f"n{one}", port=made[one].port)
        for node in made.values():
            node.tell(start=True)
        yield made
    finally:
        for node in made.values():
            node.close()


@pytest.fixture
def nodes():
    with running("12345678", "58", LINKS) as made:
        yield made


def carries(node, packets=100):
    """Wait until the node has forwarded so many more."""
    before = node.forwarded
    eventually(lambda: node.forwarded > before + packets)


def test_traffic_resumes_after_kill_9_of_a_forwarding_node_on_the_tree(nodes):
    source, receivers = nodes["1"], [nodes["7"], nodes["8"]]

    def resumes():
        """What is sent from now on arrives."""
        sent = source.sent
        eventually(lambda: all(node.heard[0] > sent + 500 for node in receivers))

    source.tell(send_to=["n7", "n8"], every_ms=2)
    eventually(lambda: all(node.heard[1] > 200 for node in receivers))
    carries(nodes["3"])  # the shorter way
    nodes["3"].kill()
    resumes()
    carries(nodes["2"])  # around the dead node
    # The topology manager goes as well: its standby keeps the fabric together.
    nodes["5"].kill()
    resumes()
    assert all(count <= highest for highest, count in (node.heard for node in receivers)), (
        "nothing arrives twice"
    )


def test_a_standby_manager_that_was_alone_sends_again_when_the_active_one_goes_on():
    """The active one, which stands still, never sees it go."""
    with running("123", "13", ["12", "13"]) as nodes:
        source, receiver = nodes["3"], nodes["2"]
        source.tell(send_to=["n2"], every_ms=2)
        eventually(lambda: receiver.heard[1] > 100)

        def sends_nothing():
            sent = source.sent
            time.sleep(0.5)
            return source.sent == sent

        os.kill(nodes["1"].process.pid, signal.SIGSTOP)
        try:
            eventually(sends_nothing)
        finally:
            os.kill(nodes["1"].process.pid, signal.SIGCONT)
        sent = source.sent
        eventually(lambda: receiver.heard[0] > sent + 100)
