"""The rendezvous on real sockets: servers and clients that are killed with -9 under load."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from functools import partial
from itertools import pairwise

import pytest

from psph import cli
from tests.e2e import rendezvous_process
from tests.e2e.node_process import NodeProcess, eventually
from tests.ports import free_port, free_ports
from tests.psph.test_serve import PSPH
from tests.sizes import size

SERVERS, MANAGERS, CLIENTS = ("r1", "r2", "r3"), ("t1", "t2"), ("a", "b", "c", "d")
STEADY, CHURN, WHOLE = range(size(200, 400)), range(1_000, 1_080), 3


class Node(NodeProcess):
    module = rendezvous_process.__name__

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.shown = {"shown": 0}

    def said(self, what):
        if "shown" in what:
            self.shown = what
        else:
            self.last = what

    def show(self):
        number = self.shown["shown"] + 1
        self.tell(show=number)
        eventually(lambda: self.shown["shown"] == number)
        return self.shown


class Fabric:
    """t1 and t2 are topology managers and linked to all; so any other node may die."""

    def __init__(self, directory):
        self.directory = directory
        self.nodes = {name: Node(name, "topology", self.storage(name)) for name in MANAGERS}
        for name in SERVERS:
            self.nodes[name] = Node(name, "rendezvous", self.storage(name), free_port())
        self.nodes |= {name: Node(name) for name in CLIENTS}
        for node in self.nodes.values():
            node.ready()
        for node in self.nodes.values():
            self._link(node)

    def _link(self, node):
        for name, other in self.nodes.items():
            if name != node.name and (name in MANAGERS or node.name in MANAGERS):
                node.tell(link=name, port=other.port)
        node.tell(start=True)

    def __getitem__(self, name):
        return self.nodes[name]

    def storage(self, name):
        return str(self.directory / f"{name}.sqlite")

    def restart(self, name, with_disk):
        before = self.nodes[name]
        if not with_disk:
            for file in self.directory.glob(f"{name}.sqlite*"):
                file.unlink()
        before.close()
        node = self.nodes[name] = Node(name, before.roles, before.storage, before.port)
        node.ready()
        self._link(node)

    def close(self):
        for node in self.nodes.values():
            node.close()


@pytest.fixture
def fabric(tmp_path):
    made = Fabric(tmp_path)
    yield made
    made.close()


def publishers(item):
    """Who publishes it for good: one, of every fifth item two."""
    return [CLIENTS[item % 4]] + ([CLIENTS[(item + 1) % 4]] if item % 5 == 0 else [])


def item_subscribers(item):
    """Who subscribes to it for good: one, of every second item two."""
    return [CLIENTS[(item + 1) % 4]] + ([CLIENTS[(item + 2) % 4]] if item % 2 == 0 else [])


def subscribers(item):
    """These, and d where it subscribes to the whole scope."""
    whole = item % rendezvous_process.SCOPES == WHOLE
    return {*item_subscribers(item)} | ({"d"} if whole else set())


def work_of(name):
    return {
        "publish": [item for item in STEADY if name in publishers(item)],
        "subscribe": [item for item in STEADY if name in item_subscribers(item)],
        "whole": [WHOLE] if name == "d" else [],
        "churn": list(CHURN),
        "every_ms": 20,
        "compete": name != "d",
    }


def steady_matches():
    return sum(len(publishers(item)) * len(subscribers(item)) for item in STEADY)


def mismatches(shown):
    """By what the living clients have registered: who should be matched and is not, or is and
    should not be."""
    wrong = []
    for item in [*STEADY, *CHURN]:
        scope = item % rendezvous_process.SCOPES
        publishing = [name for name in shown if item in shown[name]["there"]["publication"]]
        listening = [
            name
            for name in shown
            if item in shown[name]["there"]["subscription"]
            or scope in shown[name]["there"]["whole"]
        ]
        for name in publishing:
            if shown[name]["listeners"].get(str(item)) != sorted(listening):
                wrong.append((item, name, "listeners", shown[name]["listeners"].get(str(item))))
        for name in shown:
            expected = sorted(publishing) if name in listening else []
            if sorted(shown[name]["sources"].get(str(item), [])) != expected:
                wrong.append((item, name, "sources", shown[name]["sources"].get(str(item))))
    return wrong


def test_matches_and_writer_leases_survive_kill_9_of_servers_and_clients(fabric):
    clients = {name: fabric[name] for name in CLIENTS}
    for name, client in clients.items():
        client.tell(work=work_of(name))

    def all_secure():
        """In the homes that there are when every client knows all servers."""
        last = [client.last for client in clients.values()]
        known = all(each.get("servers") == [*SERVERS] for each in last)
        return known and sum(each["secure"] for each in last) >= steady_matches()

    def secured():
        eventually(all_secure, say=lambda: [c.last.get("secure") for c in clients.values()])

    def served(count=100):
        """The load goes on: each client's requests are answered."""
        before = {name: client.last["codes"].get("OK", 0) for name, client in clients.items()}
        eventually(
            lambda: all(
                c.last["codes"].get("OK", 0) >= before[n] + count for n, c in clients.items()
            ),
            say=lambda: {name: client.last["codes"] for name, client in clients.items()},
        )

    def voting(name):
        eventually(
            lambda: fabric[name].last.get("view", {}).get("settled"),
            say=lambda: fabric[name].last.get("view"),
        )

    def holding():
        return [name for name, client in clients.items() if client.last.get("holds")]

    # Under load one server dies, and comes back with its disk.
    secured()
    for name in SERVERS:
        voting(name)
    eventually(holding)
    served()
    fabric["r1"].kill()
    served()
    fabric.restart("r1", with_disk=True)
    voting("r1")
    assert not fabric["r1"].last["knew_nothing"]
    # Another dies, and has lost its disk. (Of a match at least one home must be left.)
    secured()
    fabric["r2"].kill()
    served()
    fabric.restart("r2", with_disk=False)
    voting("r2")
    assert fabric["r2"].last["knew_nothing"]
    secured()
    eventually(lambda: sum(bool(client.last["held"]) for client in clients.values()) >= 2)
    # The holder of the writer lease dies.
    for client in clients.values():
        client.tell(keep=True)
    # Whoever was about to give it back has done so.
    eventually(lambda: all(client.last["keep"] for client in clients.values()))
    holders = []
    eventually(lambda: holders.extend(holding()) or holders)
    holder = holders[0]
    dead = clients.pop(holder)
    died = time.monotonic_ns()
    dead.kill()
    eventually(holding, say=lambda: {n: c.last["held"] for n, c in clients.items()})
    served()
    # The load stops.
    for client in clients.values():
        client.tell(pause=True)
    eventually(
        lambda: all(
            c.last["asked"] == c.last["ended"] and not c.last["busy"] for c in clients.values()
        ),
        say=lambda: {name: client.last for name, client in clients.items()},
    )
    found = {}

    def matched():
        found.update({name: client.show() for name, client in clients.items()})
        return not mismatches(found)

    eventually(matched, say=lambda: mismatches(found)[:10])
    registered = sum(len(each) for shown in found.values() for each in shown["there"].values())
    eventually(
        lambda: sum(fabric[name].last["registrations"] for name in SERVERS) == 2 * registered,
        say=lambda: (registered, {name: fabric[name].last for name in SERVERS}),
    )

    for client in (*clients.values(), dead):
        assert client.last["wrong"] == []
        # What it holds, and some of what it churned.
        assert client.last["codes"]["OK"] > len(STEADY) * 3 / 4
        lost = client.last["losses"]
        assert [each for each in lost if each[2] != holder or each[0] < died] == []
    for node in fabric.nodes.values():
        assert node.last["core_errors"] == 0, node.name
    held = sorted(
        (since, until, fence)
        for client in (*clients.values(), dead)
        for since, until, fence in client.last["held"]
    )
    assert len(held) >= 3
    for (_, until, fence), (since, _, next_fence) in pairwise(held):
        assert until <= since, "two hold the writer lease at the same time"
        assert fence < next_fence


# psph serve

CONFIGURATION = """
[node]
name = "{name}"
domain = "site-a.test"
roles = [{roles}]
data = "{name}"

[fabric]
listen = "127.0.0.1:{port}"
keys = ["end to end"]
link_seed = "end to end"
hello_ms = 200

[[fabric.link]]
name = "{other}"
address = "127.0.0.1:{other_port}"

[rendezvous]
members = ["r1", "r2"]
lease_s = 30
writer_lease_s = 3
settle_s = 10
time_out_s = 4
"""
"""The times of the client's `SETTINGS`: a server with a shorter lease would forget it."""


@pytest.fixture
def served(tmp_path):
    """Two servers by `psph serve`: their admin ports; and a client that has found them."""
    ports = dict(zip(("r1", "r2"), free_ports(2), strict=True))
    roles = {"r1": '"topology", "rendezvous"', "r2": '"rendezvous"'}
    processes, admin = [], {}
    client = Node("a")
    try:
        for name, other in (("r1", "r2"), ("r2", "r1")):
            file = tmp_path / f"{name}.toml"
            file.write_text(
                CONFIGURATION.format(
                    name=name,
                    roles=roles[name],
                    port=ports[name],
                    other=other,
                    other_port=ports[other],
                )
            )
            process = subprocess.Popen(
                [PSPH, "serve", "--config", file],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            processes.append(process)
        for name, process in zip(ports, processes, strict=True):
            admin[name] = re.fullmatch(r"ready http://(.*)/\n", process.stdout.readline())[1]
        client.ready()
        client.tell(link="r1", port=ports["r1"])  # which lets in whoever has the key
        client.tell(start=True)
        yield admin, client
    finally:
        client.close()
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
            assert "Traceback" not in errors


def test_status_and_drain_of_a_served_rendezvous(served, capsys, tmp_path):
    admin, client = served

    def status(name):
        assert cli.run(["fabric", "status", "--node", admin[name], "--json"]) == 0
        return json.loads(capsys.readouterr().out)["rendezvous"]

    def settled(name, members):
        found = status(name)
        view = found["view"]
        return view["settled"] and view["members"] == members

    for name in admin:
        eventually(partial(settled, name, ["r1", "r2"]), say=partial(status, name))
    publish, subscribe = list(range(60)), list(range(30, 90))
    client.tell(
        work={
            "publish": publish, "subscribe": subscribe, "whole": [], "churn": [],
            "every_ms": 1_000, "compete": True,
        }
    )  # fmt: skip
    scopes = rendezvous_process.SCOPES
    registered = scopes + len(publish) + len(subscribe)

    def holds_all(name):
        found = status(name)
        return found["registrations"] == registered and found["requests"]["ok"] >= registered

    for name in admin:
        eventually(partial(holds_all, name), say=partial(status, name))
        found = status(name)
        assert found["servers"] == ["r1", "r2"]
        assert (found["clients"], found["scopes"], found["items"]) == (1, scopes, 90)
        assert found["shards"]["first"] + found["shards"]["second"] == scopes
        assert found["shards"]["elsewhere"] == 0
    assert sum(status(name)["shards"]["first"] for name in admin) == scopes
    eventually(lambda: client.last.get("holds"), say=lambda: client.last)
    assert cli.run(["fabric", "status", "--node", admin["r1"]]) == 0
    assert re.search(rf"registrations +{registered}", capsys.readouterr().out)

    drain = ["fabric", "drain", "--node", admin["r2"], "--token-file"]
    wrong = tmp_path / "wrong"
    wrong.write_text("a guess\n")
    assert cli.run([*drain, str(wrong)]) == 1
    error = capsys.readouterr().err
    assert "401" in error
    assert "admin token" in error
    assert error.count("\n") == 1
    assert not status("r2")["view"]["drained"]

    assert cli.run([*drain, str(tmp_path / "r2" / "admin-token")]) == 0
    assert "is being drained" in capsys.readouterr().out
    for name in admin:
        eventually(partial(settled, name, ["r1"]), say=partial(status, name))
    eventually(lambda: status("r2")["registrations"] == 0, say=lambda: status("r2"))
    assert status("r2")["view"]["drained"]
    found = status("r1")
    assert found["registrations"] == registered
    assert found["shards"] == {"first": scopes, "second": 0, "elsewhere": 0}
    assert client.last["wrong"] == []
    assert client.last["core_errors"] == 0
