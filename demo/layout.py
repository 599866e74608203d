"""Who is in the world, and the configuration of each: pure text, nothing is started here.

        n1 --- n3 --- n5
       / | \\   |  \\   | \\
psph-a   |   \\ |    \\ |   psph-b
       \\ |    \\|     \\| /
        n2 --- n4 --- n6

Each PSPH has two ways into the fabric, and from one to the other it is four links at least. Any
link and any node but a PSPH may fail, and updates still arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from demo.ports import HOST

DOMAINS = ("site-a.test", "site-b.test")
FABRIC = "fabric.test"
FORWARDERS = ("n1", "n2", "n3", "n4", "n5", "n6")
PROXIES = {"site-a.test": "psph-a", "site-b.test": "psph-b"}
RENDEZVOUS = ("n2", "n5", "n6")
"""Three, because a majority of them gives writer leases: any one may be stopped."""
TOPOLOGY = ("n3", "n4")
"""One is active; the other takes over."""
NAME_SERVER = "dns"
LINKS = (
    ("psph-a", "n1"), ("psph-a", "n2"),
    ("n1", "n2"), ("n1", "n3"), ("n1", "n4"), ("n2", "n4"), ("n3", "n4"),
    ("n3", "n5"), ("n3", "n6"), ("n4", "n6"), ("n5", "n6"),
    ("n5", "psph-b"), ("n6", "psph-b"),
)  # fmt: skip
PUBLISHING = ("site-b.test", "said")
"""The domain, and the topic of its website's host, that the page itself publishes on."""
USERS = {"site-a.test": "alice@site-a.test", "site-b.test": "bob@site-b.test"}
FEEDS = ("feed.xml", "notes.xml")
"""Of each website; the first grows by itself."""
NODES = (*FORWARDERS, *PROXIES.values())
"""Everybody with links."""

Ways = Mapping[tuple[str, str], int]
"""By sender and receiver: the port of whoever stands between the two and passes packets on."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Made new for every data directory: these ports are open to every user of the machine."""

    fabric_key: str
    link_seed: str
    tsig: Mapping[str, str]
    """By domain, in base64."""
    page: str = ""
    """What the page shows when it publishes."""


def link_id(a: str, b: str) -> str:
    """What a link is called in the API, from whichever end."""
    return "--".join(sorted((a, b)))


def letter(domain: str) -> str:
    return domain.removeprefix("site-").removesuffix(".test")


def website(domain: str) -> str:
    """The name of the part that is the website of a domain."""
    return f"site-{letter(domain)}"


def page_topic(ports: Mapping[str, int]) -> str:
    """What the page publishes on, while it moves."""
    domain, path = PUBLISHING
    return f"http://news.{domain}:{ports[f'{website(domain)}.web']}/{path}"


def port_names() -> list[str]:
    """All ports that are needed, by part and purpose."""
    return [
        *(f"{node}.{what}" for node in NODES for what in ("fabric", "admin")),
        *(f"{proxy}.hub" for proxy in PROXIES.values()),
        f"{NAME_SERVER}.dns",
        f"{NAME_SERVER}.admin",
        *(f"{website(domain)}.web" for domain in DOMAINS),
    ]


def configurations(ports: Mapping[str, int], secrets: Secrets, ways: Ways) -> dict[str, str]:
    """The TOML of every part that `psph serve` runs."""
    return {
        NAME_SERVER: _name_server(ports, secrets),
        **{node: _forwarder(node, ports, secrets, ways) for node in FORWARDERS},
        **{PROXIES[domain]: _proxy(domain, ports, secrets, ways) for domain in DOMAINS},
    }


def site_configurations(
    ports: Mapping[str, int], host: str, listen: str | None, every: float
) -> dict[str, str]:
    """The TOML of every website; browsers reach it at `host`, for which it listens there, too."""
    return {website(domain): _site(domain, ports, host, listen, every) for domain in DOMAINS}


def _site(
    domain: str, ports: Mapping[str, int], host: str, listen: str | None, every: float
) -> str:
    port = ports[f"{website(domain)}.web"]
    addresses = [f"{HOST}:{port}", *([f"{listen}:{port}"] if listen else [])]
    listed = ", ".join(f'"{address}"' for address in addresses)
    return (
        f'# The website of {domain}.\ndomain = "{domain}"\nlisten = [{listed}]\n'
        f'hub = "http://{HOST}:{ports[f"{PROXIES[domain]}.hub"]}/hub"\n'
        f"feeds = [{', '.join(f'{chr(34)}{feed}{chr(34)}' for feed in FEEDS)}]\n"
        f'reachable = "http://{host}:{port}"\n'
        f'file = "data/{website(domain)}.json"\nevery_s = {every}\n'
    )


def _name_server(ports: Mapping[str, int], secrets: Secrets) -> str:
    text = _node(NAME_SERVER, "names.test", ["dns"], ports)
    text += f'\n[dns]\nlisten = ["{HOST}:{ports["dns.dns"]}"]\n'
    for domain in DOMAINS:
        text += f'\n[[dns.key]]\nname = "{letter(domain)}"\nsecret = "{secrets.tsig[domain]}"\n'
    for domain in DOMAINS:
        records = [
            "@ 60 IN SOA ns hostmaster 1 3600 600 86400 5",
            "@ 60 IN NS ns",
            *(f"{host} 60 IN A {HOST}" for host in ("@", "ns", "news", "psph", "rv")),
            *(f"_psirp-rv._udp 60 IN SRV 0 5 {ports[f'{n}.fabric']} rv" for n in RENDEZVOUS),
        ]
        listed = "".join(f'    "{record}",\n' for record in records)
        text += (
            f'\n[[dns.zone]]\norigin = "{domain}"\nupdate = ["{letter(domain)}"]\n'
            f"records = [\n{listed}]\n"
        )
    return text


def _forwarder(name: str, ports: Mapping[str, int], secrets: Secrets, ways: Ways) -> str:
    roles = ["forwarder"]
    roles += ["rendezvous"] if name in RENDEZVOUS else []
    roles += ["topology"] if name in TOPOLOGY else []
    text = _node(name, FABRIC, roles, ports) + _fabric(name, ports, secrets, ways)
    return text + _RENDEZVOUS + _TRACES.format(name=name)


def _proxy(domain: str, ports: Mapping[str, int], secrets: Secrets, ways: Ways) -> str:
    name, short = PROXIES[domain], letter(domain)
    dns, hub = f"{HOST}:{ports['dns.dns']}", ports[f"{name}.hub"]
    domains = ", ".join(f'"{each}"' for each in DOMAINS)
    # Browsers know no names of ours, so hubs and their mobility proxies go by addresses.
    hubs = (ports[f"{each}.hub"] for each in PROXIES.values())
    peers = ", ".join(f'"http://{HOST}:{port}"' for port in hubs)
    return (
        _node(name, domain, ["proxy"], ports)
        + _fabric(name, ports, secrets, ways)
        + _RENDEZVOUS
        + f"""
[bootstrap]
nameservers = ["{dns}"]
update_server = "{dns}"
zones = ["{domain}"]
endpoint = "psph.{domain}:{hub}"
tsig = {{ name = "{short}", secret = "{secrets.tsig[domain]}" }}
zone_key_files = ["zone-{short}.key"]
ttl_s = 60

# Everything is on this machine, which a hub does not reach unless it is told to; so it serves no
# other topics, or any page in a browser here could ask it for what only this machine may see.
[hub]
listen = "{HOST}:{hub}"
allow_fetch = ["127.0.0.0/8"]
allow_callback = ["127.0.0.0/8"]
topic_hosts = [{domains}]
dns_zones = [{domains}]
{_page_publisher(domain, ports, secrets)}
# Clients that move bring what the other PSPH kept for them.
[mobility]
peers = [{peers}]
allow_peer = ["127.0.0.0/8"]

# Whoever is on this machine may chat as anybody.
[chat]
trust = ["127.0.0.0/8"]
"""
        + _TRACES.format(name=name)
    )


def _page_publisher(domain: str, ports: Mapping[str, int], secrets: Secrets) -> str:
    if domain != PUBLISHING[0]:
        return ""
    return f"""
# The page publishes while it roams, on this topic and no other.
[[hub.publisher]]
token = "{secrets.page}"
prefix = "{page_topic(ports)}"
"""


def _node(name: str, domain: str, roles: list[str], ports: Mapping[str, int]) -> str:
    listed = ", ".join(f'"{role}"' for role in roles)
    return (
        f"# psph serve --config {name}.toml\n\n[node]\n"
        f'name = "{name}"\ndomain = "{domain}"\nroles = [{listed}]\n'
        f'data = "data/{name}"\nadmin = "{HOST}:{ports[f"{name}.admin"]}"\n'
    )


def _fabric(name: str, ports: Mapping[str, int], secrets: Secrets, ways: Ways) -> str:
    text = (
        f'\n[fabric]\nlisten = "{HOST}:{ports[f"{name}.fabric"]}"\n'
        f'keys = ["{secrets.fabric_key}"]\nlink_seed = "{secrets.link_seed}"\n'
        "# Bloom filters, also where a few exact bits would do: they are what is shown.\n"
        "exact = false\n"
        "# Who cuts a link sees within two seconds what comes of it.\n"
        "hello_ms = 500\n"
        "faults = true\n"
    )
    for link in LINKS:
        if name in link:
            other = link[1 - link.index(name)]
            address = f"{HOST}:{ways.get((name, other), ports[f'{other}.fabric'])}"
            text += f'\n[[fabric.link]]\nname = "{other}"\naddress = "{address}"\n'
    return text


_RENDEZVOUS = f"""
[rendezvous]
members = [{", ".join(f'"{name}"' for name in RENDEZVOUS)}]
# Servers with an empty disk wait so long before they give leases: nobody likes to wait here.
writer_lease_s = 2
"""
_TRACES = """
[traces]
directory = "data/traces"
rotate_seconds = 10
recent = 4096
"""
