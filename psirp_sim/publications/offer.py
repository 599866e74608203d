"""An item that this node publishes: its history, the way to its listeners, its registration."""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.publications.history import History
from psirp_sim.publications.outgoing import ALL
from psirp_sim.publications.sending import Sending
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.rendezvous.publishing import Publication
from psirp_sim.rendezvous.trees import SharedTree, TreePool
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.data import HEADER, LARGEST_PACKET
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import HEAD, NAMES, RECORD, UNIT
from psirp_sim.wire.rendezvous import Access, Code
from psirp_sim.zfilters import ZFilter

AT_HOME = 32_768
"""Bytes of a packet that does not leave the node."""
LEAST_ROOM = HEAD.size + NAMES + RECORD.size + UNIT


class Offer:
    """Implements `sending.Way`."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        history: History,
        sid: bytes,
        rid: bytes,
        *,
        trees: TreePool,
        life: Callable[[], int],
        transmit: Callable[[list[ZFilter], bytes, bool], None],
        along: Callable[[list[ZFilter], Message], None],
        at_home: Callable[[bytes | Message], None],
        moved: Callable[[Offer], None],
        key: Ed25519PrivateKey | None,
        access: Access | None,
        guest: bool,
    ) -> None:
        """`transmit` sends a payload along filters, `along` a message; `at_home` takes either to
        the listeners on this node; `moved` is called when a listener has got on."""
        self._node = env.node
        self._trees = trees
        self._transmit = transmit
        self._along = along
        self._at_home = at_home
        self.sid, self.rid = sid, rid
        self.key, self.access, self.guest = key, access, guest
        self.history = history
        self.publication: Publication | None = None
        self.registered: Code | None = None
        """How the registration ended; None while it has not."""
        self.done: list[Callable[[Code], None]] = []
        """Who waits for that."""
        self.epoch_is_ours = False
        """Whether the epoch of the stream comes from the number of this node's life."""
        self.is_counted = False
        """Among those for which the scope is published."""
        self.closing = self.keep = False
        """Whether it is being withdrawn, and what is written down of it stays."""
        self._to_all: list[ZFilter] = []
        """The way to everybody, as it was when it last changed."""
        self._own_ways: dict[str, tuple[SharedTree, int]] = {}
        self.sending = Sending(
            env, settings, history, sid, rid, self, life=life, moved=lambda: moved(self)
        )

    def changed(self, publication: Publication) -> None:
        """Others listen, or there is another way to them."""
        self.publication = publication
        self._to_all = publication.filters
        for node in self._own_ways.keys() - publication.listeners.keys():
            self._trees.release(*self._own_ways.pop(node))
        self.sending.listeners_changed(publication.listeners.values())

    @property
    def is_complete(self) -> bool:
        """Whether all that was published is where it should be."""
        told = self.sending.ready == self.history.latest
        return told and self.sending.complete and self.registered is not None

    def close(self) -> None:
        self.sending.close()
        for way in self._own_ways.values():
            self._trees.release(*way)
        self._own_ways.clear()

    # The way

    def room(self, to: str) -> int:
        filters = self._filters(to)
        if not filters:
            return AT_HOME if self._is_home(to) else 0
        room = LARGEST_PACKET - HEADER - 1 - max(each.length for each in filters)
        return room if room >= LEAST_ROOM else 0

    def send(self, to: str, payload: bytes, named: bool) -> None:
        filters = self._filters(to)
        if filters:
            self._transmit(filters, payload, named)
        if self._is_home(to):
            self._at_home(payload)

    def tell(self, to: str, message: Message) -> None:
        filters = [] if to == self._node else self._filters(to) or self._filters(ALL)
        if filters:
            self._along(filters, message)
        if self._is_home(to):
            self._at_home(message)

    def _is_home(self, to: str) -> bool:
        publication = self.publication
        return to in (ALL, self._node) and (
            publication is not None and self._node in publication.listeners
        )

    def _filters(self, to: str) -> list[ZFilter]:
        publication = self.publication
        if publication is None or to == self._node:
            return []
        if to == ALL or len(publication.listeners) == 1:
            return self._to_all
        way = self._own_ways.get(to)
        if way is None and to in publication.listeners:
            way = self._own_ways[to] = self._trees.use([to], lambda: None)
        return [] if way is None else way[0].filters
