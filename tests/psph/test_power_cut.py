"""A hub whose machine loses power: what it acknowledged, and what readers that resume receive.

`psph hub` as a process, on a disk that holds only what was synced to it.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import urllib.parse
import urllib.request
from contextlib import closing, contextmanager

import pytest

from tests.psph.hub_process import command, running_hub
from tests.unsynced_disk import lose_power

TOPIC = "http://example.com/news"
QUERY = urllib.parse.urlencode({"topic": TOPIC})


class Machine:
    """A hub's data directory, and what its disk has of it."""

    def __init__(self, directory):
        self.data, self.platter = directory / "data", directory / "platter"
        self.platter.mkdir()
        self.url = ""

    @contextmanager
    def hub(self, *options, end=subprocess.Popen.kill):
        def run(*arguments):
            disk = ("-m", "tests.unsynced_disk", self.platter)
            return [sys.executable, *map(str, (*disk, *arguments))]

        with running_hub(self.data, *options, run=run, end=end) as self.url:
            yield

    def cut_power(self):
        """Of a machine whose hub is dead: it starts again, as another boot."""
        lose_power(self.data, self.platter, "hub.sqlite")
        self.boot()

    def boot(self):
        with closing(sqlite3.connect(self.data / "hub.sqlite")) as db, db:
            db.execute("UPDATE identity SET boot = 'the boot before'")

    def updates(self):
        with closing(sqlite3.connect(self.data / "hub.sqlite")) as db:
            return db.execute("SELECT count(*) FROM updates").fetchone()[0]

    def publish(self, body):
        """The Position that the hub answers with."""
        token = (self.data / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}
        request = urllib.request.Request(
            f"{self.url}/publish?{QUERY}", body.encode(), headers, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201
            return json.load(answer)["position"]

    def read(self, after):
        """What a reader gets that resumes after a Position, until it has caught up: kinds of
        notices, and Positions."""
        with urllib.request.urlopen(f"{self.url}/stream?{QUERY}&after={after}", timeout=30) as it:
            found, kind = [], ""
            for line in it:
                text = line.decode().strip()
                if text.startswith("event: "):
                    kind = text.removeprefix("event: ")
                elif text.startswith("data: ") and kind:
                    found.append(kind)
                    kind = ""
                elif text.startswith("data: "):
                    found.append(json.loads(text.removeprefix("data: "))["position"])
                elif "caught up" in text:
                    return found
        raise AssertionError("the stream ended")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_reader_of_what_was_lost_receives_a_reset(machine):
    with machine.hub(end=subprocess.Popen.terminate):
        kept = machine.publish("one")
    with machine.hub():
        lost = machine.publish("two")
    machine.cut_power()
    assert machine.updates() == 1, "the cut took the second one, or this shows nothing"
    with machine.hub():
        assert machine.read(kept) == []
        assert machine.read(lost) == ["reset", kept]
        after = machine.publish("something else")
        assert machine.read(lost) == ["reset", after]


def test_a_reader_of_a_topic_that_was_lost_whole_receives_a_reset(machine):
    with machine.hub(end=subprocess.Popen.terminate):
        pass
    with machine.hub():
        lost = machine.publish("one")
    machine.cut_power()
    assert machine.updates() == 0, "the cut took it, or this shows nothing"
    with machine.hub():
        assert machine.read(lost) == ["reset"]
        after = machine.publish("something else")
        assert machine.read(lost) == ["reset", after]


def test_with_power_safe_what_was_acknowledged_is_on_the_disk(machine):
    with machine.hub("--power-safe"):
        positions = [machine.publish(str(number)) for number in range(3)]
    machine.cut_power()
    with machine.hub("--power-safe"):
        assert machine.read(positions[0]) == positions[1:]
        after = machine.publish("more")
        assert machine.read(positions[-1]) == [after]
    stem, _, version = positions[-1].rpartition(".")
    assert after == f"{stem}.{int(version) + 1}"


def test_a_clean_stop_leaves_the_epoch(machine):
    with machine.hub(end=subprocess.Popen.terminate):
        first = machine.publish("one")
    machine.cut_power()
    with machine.hub():
        second = machine.publish("two")
        assert machine.read(first) == [second]
    assert second.rpartition(".")[0] == first.rpartition(".")[0]


def test_the_setting_of_a_node_reaches_all_its_stores(tmp_path):
    config = tmp_path / "node.toml"
    config.write_text(
        '[node]\nname = "n1"\ndomain = "site-a.test"\nroles = ["forwarder", "hub"]\n'
        'power_safe = true\n[hub]\nlisten = "127.0.0.1:0"\n'
        '[fabric]\nkeys = ["a secret of its own"]\nlink_seed = "seed"\n'
    )
    with subprocess.Popen(
        command("serve", "--config", config), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("ready ")
        process.kill()
    marks = {"hub.sqlite": "identity", "fabric.sqlite": "opened", "mobility.sqlite": "opened"}
    assert {path.name for path in (tmp_path / "data").glob("*.sqlite")} == set(marks)
    for name, table in marks.items():
        with closing(sqlite3.connect(tmp_path / "data" / name)) as db:
            assert db.execute(f"SELECT clean, synced FROM {table}").fetchone() == (0, 1), name
