"""Web domains, a fabric and a name server as real processes: each runs `psph serve`.

    with Domains(tmp_path, ["site-a.test", "site-b.test"]) as world:
        world.start()
        world.hub("site-a.test")   # the URL of its PSPH

Ports are chosen before anything runs, because DNS and the configurations name them. A PSPH of its
own kind is described by a `Psph`; one that is gated reaches the fabric through `world.gates`, which
may be cut.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bootstrap.registration import zone_key
from tests.e2e.gates import Gates
from tests.e2e.node_process import eventually
from tests.e2e.serving import PSPH, Serving
from tests.ports import free_port

__all__ = ["PSPH", "TTL", "Domains", "Psph"]

SECRET = "ZW5kIHRvIGVuZCB0ZXN0IHNlY3JldCBvZiBwc3Bo"
TTL = 2
HOSTS = ("ns", "@", "psph", "news", "blog", "shop", "rv")
"""Of every zone."""
FABRIC = """
[fabric]
keys = ["end to end domains"]
link_seed = "end to end domains"
hello_ms = 500
{more}

[rendezvous]
members = ["n0", "n1"]
lease_s = 6
settle_s = 2
writer_lease_s = 3
"""
TRACES = """
[traces]
directory = "traces"
{more}
"""


@dataclass(frozen=True)
class Psph:
    """What is particular about the PSPH of a zone; `hub`, `proxy` and `mobility` are lines of those
    tables."""

    zone: str
    name: str = ""
    """By which the world knows it: the zone's, unless there are several."""
    hub: str = ""
    proxy: str = ""
    mobility: str = ""
    gated: bool = False

    @property
    def key(self):
        return self.name or self.zone


class Domains:
    """The whole world."""

    def __init__(
        self,
        directory,
        zones,
        *,
        nodes=4,
        proxy="",
        hub="",
        traces="",
        mobility="",
        linger=0.5,
        more_records=(),
        others=None,
    ):
        """`zones` are names of zones with a PSPH each, or `Psph`s. `proxy`, `hub`, `traces` and
        `mobility` are lines for those tables; without any, no traces are written. `more_records` go
        into every zone. `others` are zones without a PSPH, and their records. `linger` is how long
        chains outlive their readers."""
        self.directory = Path(directory)
        self.psphs = {
            each.key: each
            for each in (each if isinstance(each, Psph) else Psph(each) for each in zones)
        }
        self.zones = list(dict.fromkeys(each.zone for each in self.psphs.values()))
        self.others = dict(others or {})
        self.dns_port = free_port()
        self.proxy, self.hub_lines, self.traces, self.mobility = proxy, hub, traces, mobility
        self.linger = linger
        self.more_records = list(more_records)
        self.fabric = [self._serving(f"n{number}") for number in range(nodes)]
        self.ports = {each.name: free_port() for each in self.fabric}
        self.dns = self._serving("dns")
        self.proxies = {key: self._serving(_process_name(key)) for key in self.psphs}
        self.hub_ports = {key: free_port() for key in self.psphs}
        self.gates = Gates()
        self.keys = {}
        self._configure()

    def _serving(self, name):
        return Serving(name, self.directory / name, free_port())

    def hub(self, key):
        """Where the PSPH of a zone serves, or the one of that name."""
        return f"http://127.0.0.1:{self.hub_ports[key]}"

    def token(self, key):
        return (self.proxies[key].directory / "data" / "admin-token").read_text().strip()

    @property
    def all(self):
        return [self.dns, *self.fabric, *self.proxies.values()]

    # Configurations

    def _configure(self):
        self.dns.write(self._dns_configuration())
        for number, node in enumerate(self.fabric):
            node.write(self._fabric_configuration(number, node))
        for key, proxy in self.proxies.items():
            zone = self.psphs[key].zone
            proxy.write(self._proxy_configuration(key, proxy))
            path = self.directory / f"{zone}.key"
            if zone not in self.keys:
                self.keys[zone] = zone_key.make(path)
            shutil.copy(path, proxy.directory / "zone.key")

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
            text += self._zone(zone, [*self._fabric_records(zone), *self.more_records])
        for zone, records in self.others.items():
            text += self._zone(zone, records)
        return text

    def _fabric_records(self, zone):
        gated = any(each.gated for each in self.psphs.values() if each.zone == zone)
        ports = [self.ports[name] for name in ("n0", "n1")]
        if gated:
            ports = [self.gates.add(zone, port) for port in ports]
        return [f"_psirp-rv._udp {TTL} IN SRV 0 5 {port} rv" for port in ports]

    def _zone(self, zone, more):
        records = [
            f"@ {TTL} IN SOA ns hostmaster 1 3600 600 86400 1",
            f"@ {TTL} IN NS ns",
            *(f"{host} {TTL} IN A 127.0.0.1" for host in HOSTS),
            *more,
        ]
        return (
            f'[[dns.zone]]\norigin = "{zone}"\nupdate = ["psph"]\ntransfer = ["psph"]\n'
            f"records = {json.dumps(records)}\n"
        )

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

    def _proxy_configuration(self, key, proxy):
        psph, port = self.psphs[key], self.hub_ports[key]
        zone = psph.zone
        return (
            self._node(proxy, zone, ["proxy"])
            + FABRIC.format(more="")
            + f"""
[hub]
listen = "127.0.0.1:{port}"
allow_fetch = ["127.0.0.0/8"]
allow_callback = ["127.0.0.0/8"]
dns_zones = {json.dumps([*self.zones, *self.others])}
{self.hub_lines}
{psph.hub}
[proxy]
request_lease_s = 3.0
linger_s = {self.linger}
{self.proxy}
{psph.proxy}
[bootstrap]
nameservers = ["127.0.0.1:{self.dns_port}"]
update_server = "127.0.0.1:{self.dns_port}"
zones = ["{zone}"]
endpoint = "psph.{zone}:{port}"
tsig = {{ name = "psph", secret = "{SECRET}" }}
zone_key_files = ["zone.key"]
ttl_s = {TTL}
{TRACES.format(more=self.traces) if self.traces else ""}
[mobility]
peers = {json.dumps([self.hub(each) for each in self.psphs])}
allow_peer = ["127.0.0.0/8"]
{self.mobility}
{psph.mobility}
"""
        )

    # Life

    def start(self):
        """Everything runs, and the PSPHs are attached and registered."""
        self.gates.start()
        for each in self.all:
            each.launch()
        for each in self.all:
            each.ready()
        for key, proxy in self.proxies.items():
            eventually(partial(self.is_joined, key), say=proxy.log)

    def is_joined(self, key):
        """Whether a PSPH knows rendezvous servers, and DNS knows it."""
        proxy, zone = self.proxies[key], self.psphs[key].zone
        return self.is_attached(key) and proxy.ask("/bootstrap/status")[zone]["registered"]

    def is_attached(self, key):
        """Whether a PSPH knows rendezvous servers."""
        return bool(self.proxies[key].ask("/fabric/status")["servers"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in reversed(self.all):
            if each.process is not None and each.process.poll() is None:
                os.kill(each.process.pid, signal.SIGTERM)
        for each in reversed(self.all):
            each.end()
        self.gates.close()


def _process_name(key):
    return "psph-" + "-".join(key.split(".")[:-1])
