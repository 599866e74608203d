"""`psph serve` with the sample domain of six nodes: status, metrics, health, captures, errors."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from scapy.utils import rdpcap

from psirp_sim.scapy_layer import Psirp
from psph import cli
from tests.ports import free_ports

PSPH = Path(sys.executable).with_name("psph")
EXAMPLE = Path(__file__).parents[2] / "examples" / "six-nodes"
PATIENCE = 60
"""Seconds until a test gives up; nothing is measured."""


@pytest.fixture(scope="module")
def domain(tmp_path_factory):
    """The six sample configurations, on ports nobody uses; by node, the admin address."""
    directory = tmp_path_factory.mktemp("domain")
    ports = dict(zip([f"770{n}" for n in range(1, 7)], free_ports(6), strict=True))
    processes, admin = [], {}
    for n in range(1, 7):
        text = (EXAMPLE / f"n{n}.toml").read_text().replace(f"127.0.0.1:780{n}", "127.0.0.1:0")
        for old, new in ports.items():
            text = text.replace(f":{old}", f":{new}")
        (directory / f"n{n}.toml").write_text(text + '\n[traces]\ndirectory = "traces"\n')
        process = subprocess.Popen(
            [PSPH, "serve", "--config", directory / f"n{n}.toml"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
    for n, process in enumerate(processes, 1):
        ready = re.fullmatch(r"ready http://(.*)/\n", process.stdout.readline())
        admin[f"n{n}"] = ready[1]
    yield admin
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    traces = list(directory.glob("traces/domain=site-a.test/date=*/node=n*/*.parquet"))
    assert len(traces) >= 6, "every node wrote clock probes"


def attached(admin, name):
    """Its status when the node knows the whole fabric, and all its links work."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with urlopen(f"http://{admin[name]}/fabric/status") as answer:
            status = json.load(answer)
        whole = status["fabric"] == {"nodes": 6, "links": 8, "reachable": 6}
        if status["manager"] == "n1" and whole and all(link["up"] for link in status["links"]):
            return status
        time.sleep(0.1)
    raise AssertionError(status)


def test_six_nodes_find_each_other(domain, capsys):
    for name in domain:
        assert attached(domain, name)["node"] == name
    assert cli.run(["fabric", "status", "--node", domain["n2"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["node"] == "n2"
    assert cli.run(["fabric", "status", "--node", domain["n1"]]) == 0
    shown = capsys.readouterr().out
    assert "active topology manager" in shown
    assert re.search(r"n4 +yes +n4", shown)
    assert re.search(r"socket +received +\d+", shown)


def test_health_and_metrics(domain):
    attached(domain, "n3")
    with urlopen(f"http://{domain['n3']}/healthz") as answer:
        assert json.load(answer)["status"] == "ok"
    with urlopen(f"http://{domain['n3']}/metrics") as answer:
        text = answer.read().decode()
    assert 'psph_link_up{link="n4"} 1.0' in text
    assert re.search(r'psph_forwarding_total\{what="received"\} \d', text)
    for what in ("received", "strangers", "accepted_links"):
        assert re.search(rf'psph_socket_total\{{what="{what}"\}} \d', text), what
    # What has not happened yet is there, too.
    assert 'psph_control_total{what="wrong_key"} 0.0' in text
    assert 'psph_publications_total{what="wrong_signature"} 0.0' in text
    assert 'psph_traces_total{what="dropped"} 0.0' in text
    assert "psph_build_info{" in text


def test_a_capture_is_read_back_by_scapy(domain, tmp_path, capsys):
    attached(domain, "n1")
    file = tmp_path / "n1.pcap"
    arguments = ["--node", domain["n1"], "--out", str(file), "--seconds", "60", "--count", "20"]
    assert cli.run(["capture", *arguments]) == 0
    assert "20 packets" in capsys.readouterr().out
    packets = rdpcap(str(file))
    assert len(packets) == 20
    assert all(Psirp in packet for packet in packets)
    hellos = [packet for packet in packets if "PsirpHello" in packet]
    assert len(hellos) > 3
    assert {"n1", "n2", "n4", "n6"} >= {_text(packet["PsirpHello"].node) for packet in hellos}


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fabric", "status", "--node", "127.0.0.1:1"], 1, "is the node running"),
        (["fabric", "status", "--node", "nonsense"], 2, "write HOST:PORT"),
        (["capture", "--node", "127.0.0.1:1", "--out", "x.pcap"], 1, "is the node running"),
        (["serve", "--config", "nowhere.toml"], 1, "nowhere.toml: No such file"),
    ],
)
def test_errors_are_one_line(capsys, arguments, code, message):
    assert cli.run(arguments) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_check_validates_without_starting(capsys, tmp_path):
    assert cli.run(["serve", "--config", str(EXAMPLE / "n1.toml"), "--check"]) == 0
    assert "is valid" in capsys.readouterr().out
    bad = tmp_path / "bad.toml"
    bad.write_text((EXAMPLE / "n1.toml").read_text().replace("127.0.0.1:7702", "nowhere"))
    assert cli.run(["serve", "--config", str(bad), "--check"]) == 1
    assert "key \"fabric.link[0]\": 'nowhere' is no address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "n6"', 'name = "n2"', "two links have the same name"),
        (":7706", ":7702", "lead to the same neighbour"),
        ('address = "127.0.0.1:7702"', 'interface = "eth0"', "an interface and a mac"),
        ("[fabric]", "[fabric]\nm = 300", "m is one of 256, 512, 1024, 2048"),
        ("[fabric]", "[fabric]\nk = 0", "k = 0 does not fit"),
        ('keys = ["change this key"]', 'keys = ["short"]', 'key "fabric.keys"'),
        ('roles = ["forwarder", "topology"]', 'roles = ["broker"]', 'key "node.roles[0]"'),
    ],
)
def test_a_bad_configuration_is_refused_before_anything_starts(capsys, tmp_path, old, new, message):
    file = tmp_path / "bad.toml"
    text = (EXAMPLE / "n1.toml").read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert cli.run(["serve", "--config", str(file), "--check"]) == 1
    assert message in capsys.readouterr().err


def serve_once(file):
    return subprocess.run(
        [PSPH, "serve", "--config", file], capture_output=True, text=True, timeout=60
    )


JOINING = """
[node]
name = "{name}"
domain = "site-a.test"
roles = ["{role}"]
data = "{name}"

[fabric]
keys = ["a key for tests"]
link_seed = "tests"
hello_ms = 100
{rest}
"""


def test_a_client_that_knows_only_the_address_of_a_server_joins(tmp_path):
    (port,) = free_ports(1)
    files = {
        "server": ("topology", f'listen = "127.0.0.1:{port}"\naccept_links = 2'),
        "client": ("forwarder", f'rendezvous = ["127.0.0.1:{port}"]'),
    }
    processes = []
    try:
        for name, (role, rest) in files.items():
            file = tmp_path / f"{name}.toml"
            file.write_text(JOINING.format(name=name, role=role, rest=rest))
            process = subprocess.Popen(
                [PSPH, "serve", "--config", file],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            processes.append(process)
            admin = re.fullmatch(r"ready http://(.*)/\n", process.stdout.readline())[1]
        deadline = time.monotonic() + PATIENCE
        status = {}
        while "server" not in status.get("servers", {}) and time.monotonic() < deadline:
            with urlopen(f"http://{admin}/fabric/status") as answer:
                status = json.load(answer)
            time.sleep(0.1)
        assert status["servers"] == {"server": ["forwarder", "topology"]}
        assert [(link["link"], link["up"]) for link in status["links"]] == [
            (f"rv-127.0.0.1-{port}", True)
        ]
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors
    assert "link.accepted link=in-127.0.0.1-" in errors
    assert "neighbour=client" in errors


def test_a_busy_port_is_said_in_one_line(tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        file = tmp_path / "n1.toml"
        text = (EXAMPLE / "n1.toml").read_text()
        file.write_text(text.replace(":7701", f":{port}").replace(":7801", ":0"))
        answer = serve_once(file)
    assert answer.returncode == 1
    assert "node n1 cannot run" in answer.stderr
    assert "in use" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_node_without_roles_is_said(tmp_path):
    file = tmp_path / "n.toml"
    file.write_text('[node]\nname = "n"\ndomain = "d"\n')
    answer = serve_once(file)
    assert answer.returncode == 1
    assert answer.stderr.endswith("names no role to run: set node.roles\n")


def test_the_samples_are_a_mesh():
    """Every link is configured at both ends."""
    ends = set()
    for n in range(1, 7):
        text = (EXAMPLE / f"n{n}.toml").read_text()
        for other in re.findall(r'\[\[fabric.link\]\]\nname = "n(\d)"', text):
            ends.add((n, int(other)))
    assert all((other, n) in ends for n, other in ends)
    assert len(ends) == 16
