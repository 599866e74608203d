"""Web domains, a fabric and a name server as real processes: each runs `psph serve`.

    with Domains(tmp_path, ["site-a.test", "site-b.test"]) as world:
        world.start()
        world.hub("site-a.test")   # the URL of its PSPH

Ports are chosen before anything runs, because DNS and the configurations name them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bootstrap.registration import zone_key
from tests.e2e.node_process import PATIENCE, ROOT, eventually

PSPH = [sys.executable, "-c", "from psph.cli import main; main()"]
SECRET = "ZW5kIHRvIGVuZCB0ZXN0IHNlY3JldCBvZiBwc3Bo"
TTL = 2
FABRIC = """
[fabric]
keys = ["end to end domains"]
link_seed = "end to end domains"
hello_ms = 200
{more}

[rendezvous]
members = ["n0", "n1"]
lease_s = 6
settle_s = 2
writer_lease_s = 3
"""


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


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


class Domains:
    """The whole world."""

    def __init__(self, directory, zones, *, nodes=6, proxy="", hub="", more_records=()):
        """`proxy` and `hub` are lines for those tables, `more_records` go into every zone."""
        self.directory = Path(directory)
        self.zones = list(zones)
        self.dns_port = free_port(socket.SOCK_DGRAM)
        self.proxy, self.hub_lines = proxy, hub
        self.more_records = list(more_records)
        self.fabric = [self._serving(f"n{number}") for number in range(nodes)]
        self.ports = {each.name: free_port(socket.SOCK_DGRAM) for each in self.fabric}
        self.dns = self._serving("dns")
        self.proxies = {zone: self._serving(f"psph-{zone.split('.')[0]}") for zone in zones}
        self.hub_ports = {zone: free_port() for zone in zones}
        self.keys = {}
        self._configure()

    def _serving(self, name):
        return Serving(name, self.directory / name, free_port())

    def hub(self, zone):
        """Where the PSPH of a zone serves."""
        return f"http://127.0.0.1:{self.hub_ports[zone]}"

    def token(self, zone):
        return (self.proxies[zone].directory / "data" / "admin-token").read_text().strip()

    @property
    def all(self):
        return [self.dns, *self.fabric, *self.proxies.values()]

    # Configurations

    def _configure(self):
        self.dns.write(self._dns_configuration())
        for number, node in enumerate(self.fabric):
            node.write(self._fabric_configuration(number, node))
        for zone, proxy in self.proxies.items():
            proxy.write(self._proxy_configuration(zone, proxy))
            self.keys[zone] = zone_key.make(proxy.directory / "zone.key")

    def _node(self, node, domain, roles):
        return (
            f'[node]\nname = "{node.name}"\ndomain = "{domain}"\nroles = {json.dumps(roles)}\n'
            f'data = "data"\nadmin = "127.0.0.1:{node.admin}"\n'
        )

    def _dns_configuration(self):
        text = self._node(self.dns, "names.test", ["dns"])
        text += f'[dns]\nlisten = ["127.0.0.1:{self.dns_port}"]\n'
        text += f'[[dns.key]]\nname = "psph"\nsecret = "{SECRET}"\n'
        for zone in self.zones:
            records = [
                f"@ {TTL} IN SOA ns hostmaster 1 3600 600 86400 1",
                f"@ {TTL} IN NS ns",
                *(f"{host} {TTL} IN A 127.0.0.1" for host in ("ns", "@", "psph", "news", "rv")),
                *(
                    f"_psirp-rv._udp {TTL} IN SRV 0 5 {self.ports[name]} rv"
                    for name in ("n0", "n1")
                ),
                *self.more_records,
            ]
            text += (
                f'[[dns.zone]]\norigin = "{zone}"\nupdate = ["psph"]\ntransfer = ["psph"]\n'
                f"records = {json.dumps(records)}\n"
            )
        return text

    def _fabric_configuration(self, number, node):
        roles = ["forwarder"]
        roles += ["rendezvous"] if number < 2 else []
        roles += ["topology"] if number in (2, 3) else []
        count = len(self.fabric)
        neighbours = sorted({(number + 1) % count, (number - 1) % count, (number + 3) % count})
        more = f'listen = "127.0.0.1:{self.ports[node.name]}"\naccept_links = 32\n'
        for other in neighbours:
            if other != number:
                name = self.fabric[other].name
                more += (
                    f'[[fabric.link]]\nname = "{name}"\naddress = "127.0.0.1:{self.ports[name]}"\n'
                )
        return self._node(node, "fabric.test", roles) + FABRIC.format(more=more)

    def _proxy_configuration(self, zone, proxy):
        return (
            self._node(proxy, zone, ["proxy"])
            + FABRIC.format(more="")
            + f"""
[hub]
listen = "127.0.0.1:{self.hub_ports[zone]}"
allow_fetch = ["127.0.0.0/8"]
allow_callback = ["127.0.0.0/8"]
dns_zones = {json.dumps(self.zones)}
{self.hub_lines}
[proxy]
request_lease_s = 3.0
linger_s = 0.5
{self.proxy}
[bootstrap]
nameservers = ["127.0.0.1:{self.dns_port}"]
update_server = "127.0.0.1:{self.dns_port}"
zones = ["{zone}"]
endpoint = "psph.{zone}:{self.hub_ports[zone]}"
tsig = {{ name = "psph", secret = "{SECRET}" }}
zone_key_files = ["zone.key"]
ttl_s = {TTL}
[traces]
directory = "traces"
"""
        )

    # Life

    def start(self):
        """Everything runs, and the PSPHs are attached and registered."""
        for each in self.all:
            each.launch()
        for each in self.all:
            each.ready()
        for zone, proxy in self.proxies.items():
            eventually(partial(self.is_joined, zone), say=proxy.log)

    def is_joined(self, zone):
        """Whether the PSPH of a zone knows rendezvous servers, and DNS knows it."""
        proxy = self.proxies[zone]
        attached = bool(proxy.ask("/fabric/status")["servers"])
        return attached and proxy.ask("/bootstrap/status")[zone]["registered"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in reversed(self.all):
            if each.process is not None and each.process.poll() is None:
                os.kill(each.process.pid, signal.SIGTERM)
        for each in reversed(self.all):
            each.end()
