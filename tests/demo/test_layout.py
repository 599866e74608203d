"""The configurations of the world: valid, fit together, and bear any one fault."""

from __future__ import annotations

import tomllib

import pytest

from demo import layout
from demo.website import SiteSettings
from psph.configuration import NodeConfiguration, check

SECRETS = layout.Secrets(
    "a key of the fabric",
    "a seed",
    dict.fromkeys(layout.DOMAINS, "c2l4dGVlbiBieXRlcyBhdCBsZWFzdA=="),
    "the token of the page",
)
PORTS = {name: 12_000 + number for number, name in enumerate(layout.port_names())}


@pytest.fixture(scope="module")
def nodes():
    texts = layout.configurations(PORTS, SECRETS, {})
    return {
        name: check(tomllib.loads(text), NodeConfiguration, name) for name, text in texts.items()
    }


def test_there_is_everything_the_world_needs(nodes):
    assert set(nodes) == {"dns", *layout.NODES}
    assert len(layout.FORWARDERS) == 6
    roles = {name: set(node.node.roles) for name, node in nodes.items()}
    assert sum("rendezvous" in each for each in roles.values()) >= 2
    assert sum("topology" in each for each in roles.values()) >= 1
    assert {n for n, each in roles.items() if "proxy" in each} == set(layout.PROXIES.values())
    for node in layout.NODES:
        assert not nodes[node].fabric.exact, "Bloom filters are what is shown"
        assert nodes[node].traces.directory


def test_links_have_two_ends(nodes):
    for name in layout.NODES:
        for link in nodes[name].fabric.link:
            other = nodes[link.name]
            assert other.fabric.listen == link.address
            assert name in [back.name for back in other.fabric.link]
            assert layout.link_id(name, link.name) == layout.link_id(link.name, name)


def _connected(links, without=()):
    reached = {"psph-a"}
    while (
        found := {
            node
            for link in links
            if reached.intersection(link)
            for node in link
            if node not in without
        }
        - reached
    ):
        reached |= found
    return "psph-b" in reached


@pytest.mark.parametrize("cut", layout.LINKS, ids=lambda link: layout.link_id(*link))
def test_any_link_may_fail(cut):
    assert _connected([link for link in layout.LINKS if link != cut])


@pytest.mark.parametrize("node", layout.FORWARDERS)
def test_any_node_may_fail(node):
    assert _connected(layout.LINKS, without={node})
    assert len(set(layout.TOPOLOGY) - {node}) >= 1
    assert len(set(layout.RENDEZVOUS) - {node}) > len(layout.RENDEZVOUS) / 2


def test_packets_may_be_led_another_way():
    texts = layout.configurations(PORTS, SECRETS, {("n1", "n3"): 4_711})
    links = {link["name"]: link["address"] for link in tomllib.loads(texts["n1"])["fabric"]["link"]}
    assert links["n3"] == "127.0.0.1:4711"
    assert links["n2"] == f"127.0.0.1:{PORTS['n2.fabric']}"


def test_websites_are_where_browsers_reach_them():
    texts = layout.site_configurations(PORTS, "192.0.2.7", "192.0.2.7", 5.0)
    site = check(tomllib.loads(texts["site-a"]), SiteSettings, "site-a")
    port = PORTS["site-a.web"]
    assert site.listen == [f"127.0.0.1:{port}", f"192.0.2.7:{port}"]
    assert site.reachable == f"http://192.0.2.7:{port}"
    assert site.topic("feed.xml") == f"http://news.site-a.test:{port}/feed.xml"
    assert site.hub == f"http://127.0.0.1:{PORTS['psph-a.hub']}/hub"
