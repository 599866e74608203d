"""`psph serve` with the role dns: the example, metrics, and what a kill does not take away."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import dns.message
import dns.query
import dns.rcode
import dns.tsig
import dns.update
import pytest

from psph import cli
from psph.configuration import NodeConfiguration, load
from tests.ports import free_port

PSPH = Path(sys.executable).with_name("psph")
EXAMPLE = Path(__file__).parents[2] / "examples" / "dns.toml"
ZONE = "site-a.test"
SECRET = re.search(r'^secret = "(.*)"$', EXAMPLE.read_text(), re.MULTILINE)[1]
KEY = dns.tsig.Key("psph-key", SECRET)


@pytest.fixture
def file(tmp_path):
    text = EXAMPLE.read_text().replace(":7810", ":0").replace(":5354", f":{free_port()}")
    (tmp_path / "dns.toml").write_text(text)
    return tmp_path / "dns.toml"


class Served:
    """A process that answers."""

    def __init__(self, file):
        self.port = int(re.search(r'listen = \["127.0.0.1:(\d+)"\]', file.read_text())[1])
        self.process = subprocess.Popen(
            [PSPH, "serve", "--config", file],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        ready = re.fullmatch(r"ready http://(.*)/\n", self.process.stdout.readline())
        assert ready, self.process.communicate(timeout=60)
        self.admin = ready[1]

    def ask(self, message, ask=dns.query.udp):
        return ask(message, "127.0.0.1", 30, port=self.port)

    def find(self, name, kind="A"):
        return self.ask(dns.message.make_query(f"{name}.{ZONE}", kind))

    def end(self, number):
        os.kill(self.process.pid, number)
        _, errors = self.process.communicate(timeout=60)
        assert "Traceback" not in errors
        return errors

    def get(self, path):
        with urlopen(f"http://{self.admin}{path}") as answer:
            return answer.read().decode()


@contextmanager
def served(file):
    one = Served(file)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate(timeout=60)


def adding(name, text="192.0.2.9", kind="A"):
    update = dns.update.UpdateMessage(ZONE, keyring=KEY)
    update.add(name, 60, kind, text)
    return update


def test_the_example_serves(file):
    with served(file) as server:
        found = server.find("_psirp._tcp", "SRV")
        assert found.answer[0][0].port == 8080
        assert server.find("missing").rcode() == dns.rcode.NXDOMAIN
        assert server.ask(adding("new")).rcode() == dns.rcode.NOERROR
        assert server.find("new").answer
        refused = dns.update.UpdateMessage(ZONE)
        refused.add("other", 60, "A", "192.0.2.9")
        assert server.ask(refused).rcode() == dns.rcode.REFUSED
        transfer = dns.message.make_query(ZONE, "AXFR")
        assert server.ask(transfer, dns.query.tcp).rcode() == dns.rcode.REFUSED
        assert json.loads(server.get("/healthz"))["status"] == "ok"
        metrics = server.get("/metrics")
        for line in (
            'psph_dns_questions_total{rcode="NOERROR"} 2.0',
            'psph_dns_questions_total{rcode="NXDOMAIN"} 1.0',
            'psph_dns_updates_total{rcode="NOERROR"} 1.0',
            'psph_dns_updates_total{rcode="REFUSED"} 1.0',
            'psph_dns_transfers_total{rcode="REFUSED"} 1.0',
            'psph_dns_serial{zone="site-a.test"} 2.0',
            'psph_dns_records{zone="site-a.test"} 7.0',
        ):
            assert line in metrics
        errors = server.end(signal.SIGTERM)
    assert server.process.returncode == 0
    assert f"zone.served zone={ZONE} serial=1 address=127.0.0.1:{server.port}" in errors
    assert re.search(
        rf'update.answered zone={ZONE} key=psph-key client=.* what="serial 2: added new', errors
    )
    assert SECRET not in errors


def test_what_was_acknowledged_survives_a_kill(file):
    """Several times: an update is acknowledged, and the very next thing is SIGKILL."""
    for n in range(2):
        with served(file) as server:
            for earlier in range(n):
                assert server.find(f"n{earlier}").answer, earlier
            ask = dns.query.tcp if n % 2 else dns.query.udp
            answer = server.ask(adding(f"n{n}"), ask)
            server.process.kill()
            assert answer.rcode() == dns.rcode.NOERROR
    with served(file) as server:
        assert len([n for n in range(2) if server.find(f"n{n}").answer]) == 2
        soa = server.ask(dns.message.make_query(ZONE, "SOA"))
        assert soa.answer[0][0].serial == 3
        server.end(signal.SIGTERM)


def test_a_kill_in_a_storm_of_updates_leaves_whole_ones(file):
    with served(file) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", server.port))
        client.settimeout(60)
        for n in range(200):
            update = adding(f"left{n}")
            update.add(f"right{n}", 60, "A", "192.0.2.9")
            client.send(update.to_wire())
            if n == 100:
                assert len(client.recv(2000)) > 12  # it is in the midst of them
        server.process.kill()
    with served(file) as server:
        there = 0
        for n in range(200):
            left, right = server.find(f"left{n}"), server.find(f"right{n}")
            assert bool(left.answer) == bool(right.answer)
            there += bool(left.answer)
        assert there >= 1
        server.end(signal.SIGTERM)


def test_a_changed_configuration_is_served(file):
    with served(file) as server:
        assert server.ask(adding("dynamic")).rcode() == dns.rcode.NOERROR
        server.end(signal.SIGTERM)
    text = file.read_text()
    file.write_text(text.replace('"news 300 IN A 127.0.0.1"', '"fresh 300 IN A 127.0.0.1"'))
    with served(file) as server:
        assert server.find("fresh").answer
        assert server.find("dynamic").answer
        assert server.find("news").rcode() == dns.rcode.NXDOMAIN
        server.end(signal.SIGTERM)


def test_a_port_in_use_is_one_line(file):
    port = re.search(r'listen = \["127.0.0.1:(\d+)"\]', file.read_text())[1]
    with socket.create_server(("127.0.0.1", int(port))):
        done = subprocess.run(
            [PSPH, "serve", "--config", file], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1
    assert "cannot run" in done.stderr
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_is_none_is_one_line(file):
    data = file.parent / "dns-data"
    data.mkdir()
    (data / "zones.sqlite").write_text("this is no database, and it is long enough for one" * 40)
    done = subprocess.run(
        [PSPH, "serve", "--config", file], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "the name server cannot run" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('roles = ["dns"]', 'roles = ["dns", "x"]', 'key "node.roles[1]"'),
        ('listen = ["127.0.0.1:5354"]', "listen = []", 'key "dns.listen"'),
        ('listen = ["127.0.0.1:5354"]', 'listen = ["here"]', "'here' is no address"),
        ('update = ["psph-key"]', 'update = ["other"]', "the key 'other', which is not there"),
        (SECRET, "not base64!", "is not base64"),
        (SECRET, "c2hvcnQ=", "has 5 bytes: at least 16"),
        ('name = "psph-key"', 'name = "a..b"', 'key "dns.key[0]"'),
        ("[[dns.zone]]", f'[[dns.key]]\nname="PSPH-key."\nsecret="{SECRET}"\n[[dns.zone]]', "two"),
        ('name = "psph-key"', 'name = "psph-key"\nalgorithm = "hmac-md5"', "dns.key[0].algorithm"),
        ('origin = "site-a.test"', 'origin = "site-b.test"\ncolor = 1', "dns.zone[0].color"),
        ('"@ 300 IN NS ns",', "", 'key "dns.zone[0]": the zone site-a.test. has no NS record'),
        ('"ns 300 IN A 127.0.0.1"', '"ns 300 IN A 127.0.0"', "'ns 300 IN A 127.0.0' of the zone"),
        ('"ns 300 IN A 127.0.0.1"', '"x.example. A 127.0.0.1"', "is not in the zone"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused_before_anything_starts(capsys, tmp_path, old, new, message):
    text = EXAMPLE.read_text()
    assert old in text
    file = tmp_path / "bad.toml"
    file.write_text(text.replace(old, new))
    assert cli.run(["serve", "--config", str(file), "--check"]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert SECRET not in error


def test_the_role_needs_its_table(capsys, tmp_path):
    file = tmp_path / "bad.toml"
    begin = EXAMPLE.read_text().partition("[dns]")[0]
    for text, message in (
        (begin, "a node with the role dns needs a table [dns]"),
        (begin + "[dns]\n", 'key "dns.zone": missing'),
        (begin + "[dns]\nzone = []\n", "a name server without a zone"),
    ):
        file.write_text(text)
        assert cli.run(["serve", "--config", str(file), "--check"]) == 1
        assert message in capsys.readouterr().err


def test_the_table_as_the_server_wants_it():
    settings = load(EXAMPLE, NodeConfiguration).dns.settings()
    assert settings.listen == (("127.0.0.1", 5354),)
    assert settings.zones[0].update == ("psph-key",)
    assert settings.keys[0].secret == b"change this key before you use it"
