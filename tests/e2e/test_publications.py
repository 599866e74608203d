"""Publications on real sockets: eight processes, three of which are killed with -9 under load."""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.e2e import publications_process
from tests.e2e.node_process import PATIENCE, NodeProcess
from tests.ports import free_port
from tests.sizes import size

#     p1   c1       every client is linked to both forwarding nodes, and so is every server:
#      | x |        whichever of the two dies, there is a way around it
#     f1   f2
#      | x |        p1, p2 publish; c1, c2 listen to both, p1 and p2 to each other
#     r1   r2
PUBLISHERS, LISTENERS = ("p1", "p2"), ("c1", "c2")
FORWARDERS, SERVERS = ("f1", "f2"), ("r1", "r2")
ITEMS = {"p1": [0, 1], "p2": [2, 3]}
VERSIONS = size(700, 1_250)
"""Of each of the four items."""
HOLD = 150
"""Versions that are published only when the dead are back: so there is a load then, too."""
HEARD_BY = {
    "c1": [0, 1, 2, 3],
    "c2": [0, 1, 2, 3],
    "p1": ITEMS["p2"],
    "p2": ITEMS["p1"],
}


class Node(NodeProcess):
    module = publications_process.__name__

    @property
    def forwarded(self):
        return self.last.get("forwarding", {}).get("forwarded", 0)

    @property
    def heard(self):
        return sum(self.last.get("heard", {}).values())

    @property
    def published(self):
        return sum(self.last.get("published", {}).values())


class Fabric:
    def __init__(self, directory):
        self.nodes = {}
        for name in FORWARDERS:
            self.nodes[name] = Node(name, port=free_port())
        for name in SERVERS:
            storage = str(directory / f"{name}.sqlite")
            self.nodes[name] = Node(name, "topology,rendezvous", storage, free_port())
        for name in (*PUBLISHERS, *LISTENERS):
            self.nodes[name] = Node(name)
        for node in self.nodes.values():
            node.ready()
        for node in self.nodes.values():
            self._link(node)

    def _link(self, node):
        for name, other in self.nodes.items():
            if (name in FORWARDERS) != (node.name in FORWARDERS):
                node.tell(link=name, port=other.port)
        node.tell(start=True)

    def __getitem__(self, name):
        return self.nodes[name]

    def restart(self, name):
        before = self.nodes[name]
        before.close()
        node = self.nodes[name] = Node(name, before.roles, before.storage, before.port)
        node.ready()
        self._link(node)

    def close(self):
        for node in self.nodes.values():
            node.close()

    def describe(self):
        return "\n".join(f"{name}: {json.dumps(node.last)}" for name, node in self.nodes.items())


@pytest.fixture
def fabric(tmp_path):
    made = Fabric(tmp_path)
    yield made
    made.close()


def test_every_version_arrives_once_whatever_is_killed(fabric):
    seed = int(os.environ.get("PSPH_SEED", time.time_ns() % 1_000_000))
    story = [f"seed {seed} (set PSPH_SEED to repeat it), {VERSIONS} versions of each item"]
    begun = time.monotonic()

    def note(text):
        story.append(f"{time.monotonic() - begun:6.2f} s: {text}")

    def state():
        return "\n".join([*story, fabric.describe()])

    def eventually(condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            wrong = {name: fabric[name].last.get("wrong") for name in HEARD_BY}
            assert not any(wrong.values()), f"{wrong}\n{state()}"
            assert time.monotonic() < deadline, f"it never came true\n{state()}"
            time.sleep(0.05)

    def progress(count):
        """Everybody has heard so many more, all items together."""
        before = {name: fabric[name].heard for name in HEARD_BY}
        eventually(lambda: all(fabric[name].heard >= before[name] + count for name in HEARD_BY))

    for name, items in HEARD_BY.items():
        fabric[name].tell(listen=items, seed=seed)
    for name, items in ITEMS.items():
        listeners = [each for each, heard in HEARD_BY.items() if items[0] in heard]
        fabric[name].tell(
            publish=items, seed=seed, versions=VERSIONS, hold=HOLD, every_ms=12,
            listeners=listeners,
        )  # fmt: skip
    progress(300)
    note("everything flows")

    # Whoever carries the load now is killed under it, and a server of the rendezvous as well.
    before = {name: fabric[name].forwarded for name in FORWARDERS}

    def carried(name):
        return fabric[name].forwarded - before[name]

    progress(100)
    eventually(lambda: max(map(carried, FORWARDERS)) > 100)
    carrier = max(FORWARDERS, key=carried)
    other = next(name for name in FORWARDERS if name != carrier)
    around = fabric[other].forwarded
    fabric[carrier].kill()
    fabric["r1"].kill()
    note(f"{carrier}, which had just forwarded {carried(carrier)} packets, and r1 are dead")
    progress(400)
    eventually(lambda: fabric[other].forwarded > around + 200)  # around the dead node
    note("everything flows around them")
    fabric.restart(carrier)
    fabric.restart("r1")
    eventually(lambda: fabric["r1"].last.get("rendezvous", {}).get("view", {}).get("settled"))
    note(f"{carrier} and r1 are back")

    # Now the node that has carried everything since is killed: the other one is as good as before.
    for name in PUBLISHERS:
        fabric[name].tell(limit=VERSIONS - HOLD // 2)
    progress(60)
    again = fabric[carrier].forwarded
    fabric[other].kill()
    for name in PUBLISHERS:
        fabric[name].tell(limit=VERSIONS)
    note(f"{other} is dead")

    def complete():
        return all(
            fabric[name].last["heard"] == {str(item): VERSIONS for item in items}
            for name, items in HEARD_BY.items()
        )

    eventually(complete)
    note("everybody has everything")
    eventually(lambda: fabric[carrier].forwarded > again + 200)  # around the dead node
    time.sleep(1)  # would anything come twice?
    print(state())
    for name in HEARD_BY:
        last = fabric[name].last
        assert last["wrong"] == [], state()
        assert last["client"]["delivered"] == VERSIONS * len(HEARD_BY[name]), state()
        large = len(range(100, VERSIONS + 1, 250))
        assert last["large"] == large * len(HEARD_BY[name]), state()
    for name, node in fabric.nodes.items():
        assert node.last["socket"]["core_errors"] == 0, f"{name}\n{state()}"
