"""The network as pages see it, from made-up answers of its nodes."""

from __future__ import annotations

from demo import layout
from demo.network import Network, show_tree
from psirp_sim.forwarding.table import ForwardingCounters


def traffic(sent=0, publications=0, fill=None, cut=False):
    return {"sent": sent, "publications": publications, "fill": fill, "cut": cut}


def status(name, links, *, up=True, **counters):
    """What a node says; `links` are its traffic by link."""
    forwarding = ForwardingCounters().as_dict()
    return {
        "node": name,
        "domain": layout.FABRIC,
        "roles": ["forwarder"],
        "active_manager": False,
        "rendezvous": None,
        "control": {"false_deliveries": counters.pop("false_deliveries", 0)},
        "forwarding": forwarding | counters,
        "links": [{"link": link, "up": up} for link in links],
        "traffic": links,
    }


def link(seen, name):
    (found,) = [each for each in seen["links"] if each["id"] == name]
    return found


def node(seen, name):
    (found,) = [each for each in seen["nodes"] if each["name"] == name]
    return found


def test_rates_are_of_both_directions():
    network = Network()
    network.look(
        10.0,
        {"n1": status("n1", {"n3": traffic(100, 7)}), "n3": status("n3", {"n1": traffic(50, 7)})},
    )
    seen = network.look(
        12.0,
        {"n1": status("n1", {"n3": traffic(120, 17)}), "n3": status("n3", {"n1": traffic(54, 17)})},
    )
    found = link(seen, "n1--n3")
    assert found["packets_per_s"] == 12.0
    assert found["publications_per_s"] == 5.0, "both ends count the same ones"
    assert found["packets"] == 174
    assert found["up"]


def test_a_node_that_began_anew_has_no_negative_rate():
    network = Network()
    network.look(1.0, {"n1": status("n1", {"n3": traffic(100, 7)})})
    seen = network.look(2.0, {"n1": status("n1", {"n3": traffic(1, 0)})})
    assert link(seen, "n1--n3")["packets_per_s"] == 0.0


def test_a_link_is_up_when_both_ends_say_so():
    both = {"n1": status("n1", {"n3": traffic()}), "n3": status("n3", {"n1": traffic()})}
    assert link(Network().look(0.0, both), "n1--n3")["up"]
    one = {"n1": both["n1"], "n3": status("n3", {"n1": traffic(cut=True)}, up=False)}
    found = link(Network().look(0.0, one), "n1--n3")
    assert (found["up"], found["cut"]) == (False, True)
    assert not link(Network().look(0.0, {"n1": both["n1"]}), "n1--n3")["up"]


def test_every_node_and_link_is_shown_though_none_answers():
    seen = Network().look(0.0, {})
    assert [each["name"] for each in seen["nodes"]] == list(layout.NODES)
    assert len(seen["links"]) == len(layout.LINKS)
    assert not any(each["up"] for each in seen["nodes"] + seen["links"])
    assert seen["shards"] == []


def test_false_copies_are_those_that_ended_and_those_that_nobody_wanted():
    links = {"n3": traffic(fill=0.1), "n2": traffic(fill=0.3)}
    answers = {"n1": status("n1", links, nowhere=2, loop=1, false_deliveries=3)}
    found = node(Network().look(0.0, answers), "n1")
    assert found["false_copies"] == 5
    assert found["dropped"] == 3
    assert found["fill"] == 0.3


def test_shards_are_those_of_rendezvous_servers():
    answer = status("n2", {}) | {
        "rendezvous": {
            "scopes": 3, "shards": {"first": 1, "second": 2, "elsewhere": 0}, "items": 4,
            "clients": 2, "registrations": 9, "view": {"settled": True},
        }
    }  # fmt: skip
    (shard,) = Network().look(0.0, {"n2": answer})["shards"]
    assert shard == {
        "server": "n2", "scopes": 3, "first": 1, "second": 2, "items": 4, "clients": 2,
        "registrations": 9, "settled": True,
    }  # fmt: skip


def test_a_tree_names_links_as_pages_do():
    tree = {
        "topic": "http://x/", "publisher": "psph-b", "listeners": ["psph-a"], "filters": 1,
        "links": [{"from": "psph-b", "to": "n5"}, {"from": "n5", "to": "n3"}],
        "false_links": [{"from": "n3", "to": "n6"}], "bits": 256, "fill": 0.1,
    }  # fmt: skip
    shown = show_tree(tree)
    assert shown["links"] == ["n3--n5", "n5--psph-b"]
    assert shown["false_links"] == ["n3--n6"]


def mobility(name, *neighbours, passive=0, active=0):
    """What a mobility proxy says; `neighbours` are (proxy, came, went)."""
    edges = [
        {"proxy": proxy, "used_s": 1.25, "came": came, "went": went, "neighbours": []}
        for proxy, came, went in neighbours
    ]
    contexts = {"passive": passive, "active": active}
    return {"proxy": name, "prepare": {"neighbours": edges, "contexts": contexts}}


def test_an_edge_between_hubs_is_shown_once_with_both_directions():
    proxies = {
        "psph-b": mobility("http://b", ("http://a", 3, 1), passive=2, active=1),
        # It began anew, and remembers only the last move.
        "psph-a": mobility("http://a", ("http://b", 0, 1), ("http://elsewhere", 5, 5)),
    }
    assert Network().look(0.0, {}, proxies)["walks"] == [
        {
            "a": "psph-a", "b": "psph-b", "to_a": 1, "to_b": 3, "used_s": 1.2,
            "contexts_a": 0, "contexts_b": 3,
        }
    ]  # fmt: skip


def test_there_is_no_edge_while_nobody_has_moved_or_nothing_is_prepared():
    proxies = {"psph-a": mobility("http://a"), "psph-b": {"proxy": "http://b"}}
    assert Network().look(0.0, {}, proxies)["walks"] == []
    assert Network().look(0.0, {})["walks"] == []
