"""The topology manager: from the graph to filters, for whoever needs them.

Every node of role `topology` runs one; the one with the lowest id among those that can be reached
is **active**, as each of them finds out from the link state alone. When it dies the next takes
over; tags follow from link ids, so filters of both work side by side.

The active manager

* tells every node how to reach the servers (managers, rendezvous) and they the node (`Routes`),
  when the node attaches and whenever that changes, until the node confirms it;
* keeps the trees it is asked for (`TreeRequest`), and sends their filters (`TreeReply`) again
  whenever the graph changes them, until the requester's next request shows that it knows.

It keeps nothing that it cannot be told again: nodes repeat what they know and what they want. A
manager that stands by passes what it hears on to the active one, so that a node which follows
the wrong manager (one that was active while the other was cut off or stood still) is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from psirp_sim.runtime.environment import Environment
from psirp_sim.settings import FabricSettings
from psirp_sim.topology.graph import Graph
from psirp_sim.topology.link_state import LinkStateDatabase
from psirp_sim.wire.control import Route, Routes, RoutesTaken, TreeReply, TreeRequest
from psirp_sim.wire.message import Message, WireFilter
from psirp_sim.zfilters import ZFilter

ROLE = "topology"
SERVER_ROLES = frozenset({ROLE, "rendezvous", "draining"})
"""Whom every node must be able to reach."""
MOST_TREES = 100_000
SLICE = 50
"""Nodes whose routes are worked out in one go."""
EAGER_TRIES = 10
"""How often routes are repeated quickly to a node that does not confirm; then only now and then."""

MakeFilters = Callable[[Graph, str, Sequence[str]], tuple[list[ZFilter], list[str]]]
"""From a graph, a source and receivers to filters, and the receivers they do not reach."""


@dataclass(slots=True)
class Told:
    """What a node was told about its servers."""

    version: int
    routes: list[Route]
    boot: int
    confirmed: bool = False
    tries: int = 0


@dataclass(slots=True)
class KeptTree:
    """A tree somebody asked for."""

    request: TreeRequest
    heard: int
    version: int = 0
    filters: list[ZFilter] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    known: bool = False
    """Whether the requester has this version."""


class TopologyManager:
    """The manager of one node, active or standing by."""

    def __init__(
        self,
        env: Environment,
        settings: FabricSettings,
        boot: int,
        database: LinkStateDatabase,
        *,
        make_filters: MakeFilters,
        send: Callable[[str, list[ZFilter], Message], None],
    ) -> None:
        """`send` gets a node, filters that lead to it, and a message for it."""
        self._env = env
        self._settings = settings
        self.boot = boot
        self._database = database
        self._make_filters = make_filters
        self._send = send
        self._told: dict[str, Told] = {}
        self.trees: dict[bytes, KeptTree] = {}
        self.active = False
        self._version = 0

    def start(self) -> None:
        self._env.call_later(self._settings.request_interval, self._repeat)

    def receive(self, message: RoutesTaken | TreeRequest) -> None:
        """Somebody talks to the manager."""
        if not self.active:
            self._relay(message)
        elif isinstance(message, RoutesTaken):
            self._taken(message)
        else:
            self._requested(message)

    def _relay(self, message: RoutesTaken | TreeRequest) -> None:
        # Only once: a false copy may bring the message back here, or to yet another standby.
        if not message.relayed:
            for active in self._database.live_with_role(ROLE)[:1]:
                if active != self._env.node:
                    self._reach(active, msgspec.structs.replace(message, relayed=True))

    def _taken(self, message: RoutesTaken) -> None:
        told = self._told.get(message.node)
        if told is not None:
            known = (message.manager, message.boot, message.version)
            told.confirmed = known == self._mark(told.version)

    def _next_version(self) -> int:
        # One count for all: it grows also for a node or a tree that was forgotten in between,
        # and that still knows what it was told before.
        self._version += 1
        return self._version

    def _mark(self, version: int) -> tuple[str, int, int]:
        return self._env.node, self.boot, version

    # Routes

    def look(self) -> None:
        """The graph has changed: who is active, and who needs other filters?"""
        managers = self._database.live_with_role(ROLE)
        active = managers[:1] == [self._env.node]
        if active != self.active:
            self.active = active
            self._env.log("manager.active" if active else "manager.standby")
            self._told.clear()
            self.trees.clear()
        if active:
            self._tell_routes()
            for tree in self.trees.values():
                self._recompute(tree)

    def _tell_routes(self) -> None:
        graph = self._database.graph
        reachable = sorted(graph.reachable(self._env.node))
        servers = [n for n in reachable if SERVER_ROLES.intersection(self._database.roles(n))]
        for gone in set(self._told).difference(reachable):
            del self._told[gone]
        self._tell_some(graph, reachable, servers)

    def _tell_some(self, graph: Graph, nodes: list[str], servers: list[str]) -> None:
        """Work through the nodes in slices: hellos must not wait for a large fabric."""
        if graph is not self._database.graph or not self.active:
            return  # there is a newer graph, and somebody looks at it already
        for node in nodes[:SLICE]:
            ways = [self._route(graph, node, server) for server in servers if server != node]
            routes = [way for way in ways if way is not None]
            told = self._told.get(node)
            boot = self._database.boot_of(node)
            if told is None or told.routes != routes or told.boot != boot:
                self._told[node] = Told(self._next_version(), routes, boot)
                self._tell(node)
        if len(nodes) > SLICE:
            self._env.call_later(0, self._tell_some, graph, nodes[SLICE:], servers)

    def _route(self, graph: Graph, node: str, server: str) -> Route | None:
        there, _ = self._make_filters(graph, node, [server])
        back, _ = self._make_filters(graph, server, [node])
        if not there or not back:
            return None  # too far for any packet
        return Route(
            server,
            self._database.roles(server),
            [WireFilter.of(each) for each in there],
            [WireFilter.of(each) for each in back],
        )

    def _tell(self, node: str) -> None:
        told = self._told[node]
        routes = Routes(node, *self._mark(told.version), told.routes)
        self._reach(node, routes)

    # Trees

    def _requested(self, request: TreeRequest) -> None:
        tree = self.trees.get(request.tree)
        if tree is None:
            if len(self.trees) >= MOST_TREES:
                return
            tree = self.trees[request.tree] = KeptTree(request, self._env.now())
            self._recompute(tree)
            return
        changed = (tree.request.source, tree.request.receivers) != (
            request.source,
            request.receivers,
        )
        tree.request, tree.heard = request, self._env.now()
        tree.known = request.known == self._mark(tree.version)
        if changed:
            self._recompute(tree)
        elif not tree.known:
            self._reply(tree)

    def _recompute(self, tree: KeptTree) -> None:
        graph, request = self._database.graph, tree.request
        reachable = graph.reachable(request.source)
        reached = [node for node in request.receivers if node in reachable]
        filters, too_far = self._make_filters(graph, request.source, reached)
        unreached = [n for n in request.receivers if n not in reachable or n in too_far]
        if tree.version == 0 or (filters, unreached) != (tree.filters, tree.unreached):
            tree.version = self._next_version()
            tree.filters, tree.unreached, tree.known = filters, unreached, False
        if not tree.known:
            self._reply(tree)

    def _reply(self, tree: KeptTree) -> None:
        self._reach(
            tree.request.requester,
            TreeReply(
                tree.request.requester,
                tree.request.tree,
                *self._mark(tree.version),
                [WireFilter.of(each) for each in tree.filters],
                tree.unreached,
            ),
        )

    # Until they know

    def _repeat(self) -> None:
        if self.active:
            for node, told in list(self._told.items()):
                if not told.confirmed:
                    told.tries += 1
                    if told.tries <= EAGER_TRIES or told.tries % EAGER_TRIES == 0:
                        self._tell(node)
            oldest = self._env.now() - 4 * self._settings.tree_interval
            for name, tree in list(self.trees.items()):
                if tree.heard < oldest:
                    del self.trees[name]
                elif not tree.known:
                    self._reply(tree)
        self._env.call_later(self._settings.request_interval, self._repeat)

    def _reach(self, node: str, message: Message) -> None:
        if node == self._env.node:
            self._send(node, [], message)
            return
        if node in self._database.graph.out:
            filters, _ = self._make_filters(self._database.graph, self._env.node, [node])
            self._send(node, filters, message)
