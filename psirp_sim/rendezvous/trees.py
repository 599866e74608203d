"""Trees shared by all who send to the same receivers: the topology manager is asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from psirp_sim.topology.attachment import Attachment, WantedTree
from psirp_sim.wire.message import MOST_RECEIVERS
from psirp_sim.zfilters import ZFilter


@dataclass(slots=True, eq=False)
class SharedTree:
    """The filters from this node to some receivers, as they are now."""

    receivers: tuple[str, ...]
    parts: list[WantedTree] = field(default_factory=list)
    users: dict[int, Callable[[], None]] = field(default_factory=dict)
    """Who is told of changes."""

    @property
    def filters(self) -> list[ZFilter]:
        """Empty until the manager has answered, and when nobody can be reached."""
        return [each for part in self.parts for each in part.filters]

    @property
    def unreached(self) -> list[str]:
        """Receivers to which there is no path at present."""
        return [node for part in self.parts for node in part.unreached]

    @property
    def answered(self) -> bool:
        """Whether the manager has said anything about all of it."""
        return all(part.version > 0 for part in self.parts)


class TreePool:
    """The trees of one node."""

    def __init__(self, node: str, attachment: Attachment) -> None:
        self._node = node
        self._attachment = attachment
        self._trees: dict[tuple[str, ...], SharedTree] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._trees)

    def use(self, receivers: Iterable[str], changed: Callable[[], None]) -> tuple[SharedTree, int]:
        """The tree to these receivers, and a ticket to give back with `release`.

        This node itself is no receiver: nothing has to be sent to it.
        """
        others = tuple(sorted({*receivers} - {self._node}))
        tree = self._trees.get(others)
        if tree is None:
            tree = self._trees[others] = SharedTree(others)
            for start in range(0, len(others), MOST_RECEIVERS):
                part = others[start : start + MOST_RECEIVERS]
                tree.parts.append(
                    self._attachment.want_tree(self._node, part, lambda *_: _tell(tree))
                )
        self._next += 1
        tree.users[self._next] = changed
        return tree, self._next

    def release(self, tree: SharedTree, ticket: int) -> None:
        """The holder of the ticket does not need it any more."""
        del tree.users[ticket]
        if not tree.users:
            del self._trees[tree.receivers]
            for part in tree.parts:
                self._attachment.give_up(part)


def _tell(tree: SharedTree) -> None:
    for ticket, changed in list(tree.users.items()):
        if ticket in tree.users:  # one that was told may have released another
            changed()
