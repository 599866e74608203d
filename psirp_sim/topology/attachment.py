"""A node's side of the topology manager: its routes to servers, and the trees it wants.

There are no addresses above the links: a node knows the filters that lead to the servers because
the manager told it (`Routes`), and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from psirp_sim.runtime.environment import Environment
from psirp_sim.settings import FabricSettings
from psirp_sim.topology.link_state import LinkStateDatabase
from psirp_sim.topology.manager import ROLE
from psirp_sim.wire.control import Route, Routes, RoutesTaken, TreeReply, TreeRequest
from psirp_sim.wire.message import MOST_RECEIVERS, Message
from psirp_sim.zfilters import ZFilter

TreeChanged = Callable[[list[ZFilter], list[str]], None]
"""Called with the filters of a tree, and the receivers they do not reach."""


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """How to reach a server, and how it reaches us."""

    roles: Sequence[str]
    there: list[ZFilter]
    back: list[ZFilter]


@dataclass(slots=True)
class WantedTree:
    """A tree this node asks for, until it is given up."""

    name: bytes
    source: str
    receivers: list[str]
    changed: TreeChanged
    filters: list[ZFilter] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    answered_by: tuple[str, int] = ("", 0)
    """Manager and its boot."""
    version: int = 0
    asked: int = 0


class Attachment:
    """What one node knows from its topology manager."""

    def __init__(
        self,
        env: Environment,
        settings: FabricSettings,
        database: LinkStateDatabase,
        *,
        send: Callable[[str, list[ZFilter], Message], None],
        attached: Callable[[], None],
    ) -> None:
        """`attached` is called whenever the routes have changed."""
        self._env = env
        self._settings = settings
        self._database = database
        self._send = send
        self._attached = attached
        self.manager: tuple[str, int] = ("", 0)
        """Who told us the routes, and in which life."""
        self._version = 0
        self._confirmed = 0
        self.routes: dict[str, ServerRoute] = {}
        self.trees: dict[bytes, WantedTree] = {}

    def start(self) -> None:
        self._env.call_later(self._settings.request_interval, self._ask_again)

    def receive(self, message: Routes | TreeReply) -> bool:
        """The manager talks to a node; whether that is us."""
        if isinstance(message, Routes):
            if message.node != self._env.node:
                return False
            self._take_routes(message)
        else:
            if message.requester != self._env.node:
                return False
            self._take_filters(message)
        return True

    def want_tree(self, source: str, receivers: Sequence[str], changed: TreeChanged) -> WantedTree:
        """Ask for the filters of a tree and be told of every change until `give_up`."""
        tree = WantedTree(b"", source, [], changed)
        self.set_receivers(tree, receivers)
        return tree

    def set_receivers(self, tree: WantedTree, receivers: Sequence[str]) -> None:
        """The tree has these receivers from now on."""
        if len(receivers) > MOST_RECEIVERS:
            raise ValueError(f"a tree has at most {MOST_RECEIVERS} receivers, not {len(receivers)}")
        # Another name, so that an answer about the old receivers cannot be taken for the new.
        self.give_up(tree)
        tree.name = self._env.random.getrandbits(128).to_bytes(16)
        tree.receivers, tree.version = list(receivers), 0
        self.trees[tree.name] = tree
        self._ask(tree)

    def give_up(self, tree: WantedTree) -> None:
        """The manager forgets the tree when nobody asks any more."""
        self.trees.pop(tree.name, None)

    # Routes

    def _take_routes(self, message: Routes) -> None:
        told_by = (message.manager, message.boot)
        if told_by == self.manager:
            if message.version < self._version:
                return
        elif self._prefers_another(message):
            return
        routes = {route.server: _server_route(route) for route in message.routes}
        news = told_by != self.manager or routes != self.routes
        self.manager, self._version, self.routes = told_by, message.version, routes
        self._confirm()
        if news:
            for tree in self.trees.values():
                self._ask(tree)
            self._attached()

    def _prefers_another(self, message: Routes) -> bool:
        """While two think that they are active, the one with the lower id is believed."""
        name, boot = self.manager
        if message.manager == name:
            return message.boot < boot
        return message.manager > name and name in self._database.live_with_role(ROLE)

    # Trees

    def _take_filters(self, message: TreeReply) -> None:
        tree = self.trees.get(message.tree)
        answered_by = (message.manager, message.boot)
        if tree is None or answered_by != self.manager:
            return
        if answered_by == tree.answered_by and message.version < tree.version:
            return
        filters = [each.zfilter() for each in message.filters]
        news = (filters, message.unreached) != (tree.filters, tree.unreached)
        tree.answered_by, tree.version = answered_by, message.version
        tree.filters, tree.unreached = filters, message.unreached
        self._ask(tree)  # which tells the manager what we know
        if news:
            tree.changed(filters, message.unreached)

    def _confirm(self) -> None:
        self._confirmed = self._env.now()
        self._to_manager(RoutesTaken(self._env.node, *self.manager, self._version))

    def _ask_again(self) -> None:
        now = self._env.now()
        # Also without any route: a manager that is cut off alone tells itself that it has none.
        # As a standby it passes the confirmation on to the active manager, which corrects it.
        if self._version and now - self._confirmed >= self._settings.tree_interval:
            self._confirm()
        for tree in self.trees.values():
            answered = tree.version > 0 and tree.answered_by == self.manager
            pause = self._settings.tree_interval if answered else self._settings.request_interval
            if now - tree.asked >= pause:
                self._ask(tree)
        self._env.call_later(self._settings.request_interval, self._ask_again)

    def _ask(self, tree: WantedTree) -> None:
        tree.asked = self._env.now()
        known = (*tree.answered_by, tree.version) if tree.version else None
        self._to_manager(TreeRequest(tree.name, self._env.node, tree.source, tree.receivers, known))

    def _to_manager(self, message: Message) -> None:
        name, _ = self.manager
        route = self.routes.get(name)
        if route is not None:
            self._send(name, route.there, message)
        elif name == self._env.node:
            self._send(name, [], message)


def _server_route(route: Route) -> ServerRoute:
    return ServerRoute(
        tuple(route.roles),
        [each.zfilter() for each in route.there],
        [each.zfilter() for each in route.back],
    )
