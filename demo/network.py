"""The network as pages see it, from what its nodes say of themselves. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from demo.layout import LINKS, NODES, link_id

Status = Mapping[str, Any]
"""What `/fabric/status` of a node says."""


class Network:
    """Remembers the counters of the look before, because pages want rates."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[int, int]] = {}
        self._looked = 0.0
        self._rates: dict[str, tuple[float, float]] = {}

    def look(
        self,
        now: float,
        statuses: Mapping[str, Status],
        proxies: Mapping[str, Status] | None = None,
    ) -> dict[str, object]:
        """All but the tree; `statuses` has the nodes that answered, `proxies` what their mobility
        proxies said, `now` is in seconds."""
        self._measure(now, statuses)
        return {
            "nodes": [_node(name, statuses.get(name)) for name in NODES],
            "links": [self._link(a, b, statuses) for a, b in LINKS],
            "shards": list(_shards(statuses)),
            "walks": show_walks(proxies or {}),
        }

    def _measure(self, now: float, statuses: Mapping[str, Status]) -> None:
        passed, self._looked = now - self._looked, now
        counted: dict[tuple[str, str], tuple[int, int]] = {}
        for name, status in statuses.items():
            for link, traffic in status.get("traffic", {}).items():
                counted[name, link] = (traffic["sent"], traffic["publications"])
        self._rates = {}
        for a, b in LINKS:
            sent, publications = 0, 0
            for end in ((a, b), (b, a)):
                before, here = self._before.get(end), counted.get(end)
                # A node that began anew counts from 0.
                if before is not None and here is not None and here >= before:
                    sent += here[0] - before[0]
                    # Both ends see the same ones.
                    publications = max(publications, here[1] - before[1])
            if passed > 0:
                self._rates[link_id(a, b)] = (sent / passed, publications / passed)
        self._before = counted

    def _link(self, a: str, b: str, statuses: Mapping[str, Status]) -> dict[str, object]:
        ends = [(statuses[x], y) for x, y in ((a, b), (b, a)) if x in statuses]
        traffics = [status["traffic"][link] for status, link in ends if link in status["traffic"]]
        fills = [traffic["fill"] for traffic in traffics if traffic["fill"] is not None]
        sent, publications = self._rates.get(link_id(a, b), (0.0, 0.0))
        return {
            "id": link_id(a, b),
            "a": a,
            "b": b,
            "up": len(ends) == 2 and all(_is_up(status, link) for status, link in ends),
            "cut": any(traffic["cut"] for traffic in traffics),
            "packets_per_s": round(sent, 1),
            "publications_per_s": round(publications, 1),
            "packets": sum(traffic["sent"] for traffic in traffics),
            "fill": max(fills, default=None),
        }


def _is_up(status: Status, link: str) -> bool:
    return any(each["link"] == link and each["up"] for each in status["links"])


def _node(name: str, status: Status | None) -> dict[str, object]:
    if status is None:
        return {"name": name, "up": False, "roles": [], "domain": None, "fill": None}
    forwarding, traffic = status["forwarding"], status.get("traffic", {})
    fills = [each["fill"] for each in traffic.values() if each["fill"] is not None]
    drops = ("short", "version", "hop_limit", "size", "numbering", "full", "loop", "nowhere")
    return {
        "name": name,
        "domain": status["domain"],
        "roles": status["roles"],
        "up": True,
        "active_manager": status["active_manager"],
        "received": forwarding["received"],
        "forwarded": forwarding["forwarded"],
        "delivered": forwarding["delivered"],
        "dropped": sum(forwarding[drop] for drop in drops),
        # What a Bloom filter sent astray ends at a node that it leads nowhere from, or where
        # nobody wants it.
        "false_copies": forwarding["nowhere"] + status["control"].get("false_deliveries", 0),
        "fill": max(fills, default=None),
    }


def _shards(statuses: Mapping[str, Status]) -> Iterable[dict[str, object]]:
    for name, status in sorted(statuses.items()):
        server = status.get("rendezvous")
        if server is not None:
            yield {
                "server": name,
                "scopes": server["scopes"],
                "first": server["shards"]["first"],
                "second": server["shards"]["second"],
                "items": server["items"],
                "clients": server["clients"],
                "registrations": server["registrations"],
                "settled": server["view"]["settled"],
            }


def show_walks(proxies: Mapping[str, Status]) -> list[dict[str, object]]:
    """The neighbour graph that mobility proxies learned: who clients moved between, how often each
    way, and what waits at the two for each other's clients. `proxies`: by node, what
    `/mobility/status` said."""
    nodes = {status["proxy"]: node for node, status in proxies.items()}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for node, status in sorted(proxies.items()):
        prepare = status.get("prepare", {})
        for each in prepare.get("neighbours", ()):
            other = nodes.get(each["proxy"])
            if other is None:
                continue
            a, b = sorted((node, other))
            walk = found.setdefault(
                (a, b), {"a": a, "b": b, "to_a": 0, "to_b": 0, "used_s": each["used_s"]}
            )
            # Both ends count; one that began anew has forgotten.
            here, there = ("to_a", "to_b") if node == a else ("to_b", "to_a")
            walk[here] = max(walk[here], each["came"])
            walk[there] = max(walk[there], each["went"])
            walk["used_s"] = round(min(walk["used_s"], each["used_s"]), 1)
    for (a, b), walk in found.items():
        for end, node in (("a", a), ("b", b)):
            contexts = proxies[node]["prepare"]["contexts"]
            walk[f"contexts_{end}"] = contexts["passive"] + contexts["active"]
    return list(found.values())


def show_tree(tree: Status) -> dict[str, object]:
    """What `/fabric/tree` says, with links by the names that pages know."""
    return {
        "topic": tree["topic"],
        "publisher": tree["publisher"],
        "listeners": tree["listeners"],
        "links": _ids(tree["links"]),
        "false_links": _ids(tree["false_links"]),
        "bits": tree["bits"],
        "fill": tree["fill"],
    }


def _ids(links: Iterable[Mapping[str, str]]) -> list[str]:
    return sorted({link_id(link["from"], link["to"]) for link in links})
