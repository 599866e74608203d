"""A node of the fabric: everything a forwarding node does, put together.

Read in this order: `topology.neighbours` finds the other ends of the links, `topology.link_state`
spreads what they found, `forwarding.table` moves packets, `topology.manager` (on some nodes)
makes filters, `topology.attachment` receives them; `rendezvous.client` finds who publishes and who
listens, at `rendezvous.server` (on some nodes); `client` publishes and subscribes. `exchange` sends
for all of them; this module starts them and hands each message to the one it is for.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from psirp_sim.client import Client
from psirp_sim.exchange import Exchange
from psirp_sim.forwarding.table import ForwardingCounters, compile_table
from psirp_sim.rendezvous.client import RendezvousClient
from psirp_sim.rendezvous.server import DRAINING, RendezvousServer
from psirp_sim.rendezvous.server import ROLE as RENDEZVOUS
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.settings import FabricSettings
from psirp_sim.topology.attachment import Attachment
from psirp_sim.topology.filter_maker import FilterMaker
from psirp_sim.topology.link_state import LinkStateDatabase
from psirp_sim.topology.manager import ROLE as TOPOLOGY
from psirp_sim.topology.manager import TopologyManager
from psirp_sim.topology.neighbours import Neighbours
from psirp_sim.topology.numbering import Numbering
from psirp_sim.wire.control import (
    NEIGHBOUR,
    Fragment,
    Hello,
    LinkState,
    Routes,
    RoutesTaken,
    Summary,
    TreeReply,
    TreeRequest,
    Wanted,
)
from psirp_sim.wire.data import (
    SAMPLED,
    Kind,
    MalformedPacket,
    Protocol,
    payload_of,
)
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import Latest, Report
from psirp_sim.wire.sealing import WrongKey
from psirp_sim.zfilters import ZFilter

Handler = Callable[[bytes], bool]
"""Gets the payload of a data packet, protocol byte removed; whether it was for this node.

A false positive of a Bloom filter also delivers: only the protocol knows that nobody here
wanted the packet.
"""

BOOT = b"fabric boot"
NUMBERINGS = 4
"""How many numberings of links stay valid, so that packets under way survive a change."""
HOLD = 20 * MILLISECOND
"""How long after the first news the changed graph is looked at."""


class FabricNode:
    """The core of a forwarding node, and of a topology manager where it has that role."""

    def __init__(
        self,
        env: Environment,
        settings: FabricSettings,
        *,
        roles: Sequence[str] = (),
        domain: str = "",
        attached: Callable[[], None] = lambda: None,
    ) -> None:
        """`attached` is called when the routes to the servers are known, and when they change."""
        self.env = env
        self.settings = settings
        self.roles = sorted({"forwarder", *roles})
        self.domain = domain
        self.handlers: dict[int, Handler] = {Protocol.CONTROL: self._control_payload}
        self.forwarding = ForwardingCounters()
        self.counters: Counter[str] = Counter()
        self.exchange = Exchange(
            env, lambda: self.settings.keys, self.counters, domain=domain, at_home=self.receive
        )
        self._attached = attached
        self._looking = False
        self._numberings: OrderedDict[int, Numbering] = OrderedDict()
        self._table_of: tuple[object, ...] = ()
        self.boot = 0
        self.begun = False
        """Whether the node has taken up its work: not before its life has a number."""
        self.manager: TopologyManager | None = None
        self.server: RendezvousServer | None = None

    # The core's side

    def start(self) -> None:
        # The clock makes it new even when the storage was lost; the storage, when the clock was
        # set back. A node that lost both finds out from the others (`_outlived`).
        stored = int.from_bytes(self.env.storage.get(BOOT) or b"")
        self.boot = max(stored + 1, self.env.wall() // MILLISECOND)
        # Nobody may hear of this life before it is sure that the next will be called newer.
        self.env.storage.write({BOOT: self.boot.to_bytes(8)}, self._begin, sync=True)

    def receive(self, link: str, packet: bytes) -> None:
        if not self.begun:
            return
        try:
            if packet[1:2] == _DATA:
                if packet[11:12] != _SAMPLED or self._trace_way(link, packet):
                    self._deliver(packet)
            elif packet[:2] == NEIGHBOUR:
                self._from_neighbour(link, packet[2:])
            else:
                raise MalformedPacket("neither data nor control")
        except MalformedPacket:
            self.counters["malformed"] += 1
        except WrongKey:
            self.counters["wrong_key"] += 1

    def stop(self) -> None:
        """Leave the fabric politely: say that we have no links any more."""
        if self.begun:
            self.database.originate(self.roles, [])

    # Sending

    def send(
        self, filters: Sequence[ZFilter], protocol: int, payload: bytes, sampled: bool = False
    ) -> None:
        """Send a payload along the trees of these filters; forwarding nodes write traces of
        packets that are `sampled`."""
        self.exchange.send(filters, protocol, payload, sampled)

    def drain(self) -> None:
        """Be a rendezvous server no longer: clients go to the others, and the view without us."""
        if self.server is None:
            raise ValueError(f"{self.env.node} is no rendezvous server")
        if list(self._rendezvous_servers()) == [self.env.node]:
            raise ValueError(f"{self.env.node} is the only rendezvous server that can be reached")
        self.server.membership.leave()
        self._drained()

    def rejoin(self) -> None:
        """Be one again."""
        if self.server is None:
            raise ValueError(f"{self.env.node} is no rendezvous server")
        self.server.membership.rejoin()
        self.roles = sorted({*self.roles, RENDEZVOUS} - {DRAINING})
        self._links_changed()

    def status(self) -> dict[str, object]:
        """What `psph fabric status` shows."""
        now = self.env.now()
        return {
            "node": self.env.node,
            "domain": self.domain,
            "roles": self.roles,
            "boot": self.boot,
            "manager": self.attachment.manager[0] or None,
            "active_manager": self.manager is not None and self.manager.active,
            "fabric": {
                "nodes": len(self.database.graph.out),
                "links": len(self.database.graph.edges) // 2,
                "reachable": len(self.database.graph.reachable(self.env.node)),
            },
            "links": [
                {
                    "link": link,
                    "up": link in known and known[link].up,
                    "neighbour": known[link].node if link in known else None,
                    "heard_s": round((now - known[link].heard) / 1e9, 3) if link in known else None,
                    "id_version": known[link].id_version if link in known else None,
                }
                for known in [self.neighbours.links]
                for link in self.env.links
            ],
            "servers": {
                server: list(route.roles) for server, route in self.attachment.routes.items()
            },
            "rendezvous": None if self.server is None else self.server.status(),
            "publications": self.client.status(),
            "trees": 0 if self.manager is None else len(self.manager.trees),
            "forwarding": self.forwarding.as_dict(),
            "control": dict(self.counters),
        }

    # Beginning

    def _begin(self) -> None:
        self.database = LinkStateDatabase(
            self.env,
            self.settings,
            self.boot,
            up=lambda: self.neighbours.up(),
            send=self.exchange.to_neighbour,
            changed=self._graph_changed,
            outlived=self._outlived,
        )
        self.neighbours = Neighbours(
            self.env,
            self.settings,
            self.boot,
            domain=self.domain,
            state=lambda: self.database.digest,
            send=self.exchange.to_neighbour,
            changed=self._links_changed,
        )
        self.attachment = Attachment(
            self.env,
            self.settings,
            self.database,
            send=self._reach,
            attached=self._routes_changed,
        )
        self.rendezvous = RendezvousClient(
            self.env,
            self.settings.rendezvous,
            self.attachment,
            epoch=lambda: self.boot,
            servers=self._rendezvous_servers,
            voters=self._voters,
            life_of=self.database.boot_of,
            reach=self._reach,
            along=self.exchange.along,
        )
        self.client = Client(
            self.env,
            self.settings.publications,
            self.settings.keys,
            self.rendezvous,
            domain=self.domain,
            life=lambda: self.boot,
            transmit=lambda filters, payload, sampled: self.send(
                filters, Protocol.PUBLICATION, payload, sampled
            ),
            along=self.exchange.along,
        )
        self.handlers[Protocol.PUBLICATION] = self.client.payload
        if RENDEZVOUS in self.roles:
            self.server = RendezvousServer(
                self.env,
                self.settings.rendezvous,
                boot=lambda: self.boot,
                live=self._voters,
                sharing=lambda: list(self._rendezvous_servers()),
                reach=self._reach,
                to_server=self.rendezvous.send,
            )
        if TOPOLOGY in self.roles:
            self.manager = TopologyManager(
                self.env,
                self.settings,
                self.boot,
                self.database,
                make_filters=FilterMaker(self.settings).filters,
                send=self._reach,
            )
            self.manager.start()
        self.begun = True
        self._compile()
        self.database.start()
        self.attachment.start()
        self._links_changed()
        self.neighbours.start()
        self.rendezvous.start()
        if self.server is not None:
            self.server.start()
            if self.server.membership.drained:
                self._drained()

    def _outlived(self, boot: int) -> None:
        """An earlier life of ours had a higher number: our storage was lost. Take the next one."""
        self.boot = boot + 1
        self.env.storage.write({BOOT: self.boot.to_bytes(8)}, sync=True)
        self.database.boot = self.neighbours.boot = self.boot
        if self.manager is not None:
            self.manager.boot = self.boot
        self.rendezvous.renew()
        self.client.renew()
        if self.server is not None:
            self.server.renew()

    def _drained(self) -> None:
        self.roles = sorted({*self.roles, DRAINING} - {RENDEZVOUS})
        self._links_changed()

    # Changes

    def _links_changed(self) -> None:
        self.database.originate(self.roles, self.neighbours.reported())

    def _routes_changed(self) -> None:
        self.rendezvous.attached()
        self._attached()

    def _rendezvous_servers(self) -> dict[str, int]:
        """Those that share the scopes among them, and the number of their lives."""
        found = self.database.live_with_role(RENDEZVOUS)
        return {server: self.database.boot_of(server) for server in found}

    def _voters(self) -> list[str]:
        """All rendezvous servers, those that are being drained included."""
        found = {*self._rendezvous_servers(), *self.database.live_with_role(DRAINING)}
        return sorted(found)

    def _graph_changed(self) -> None:
        # News comes in floods: it is looked at once they have passed.
        if not self._looking:
            self._looking = True
            self.env.call_later(HOLD, self._look)

    def _look(self) -> None:
        self._looking = False
        if self.settings.allow_exact:
            numbering = Numbering.of(self.database.graph)
            if numbering is not None:
                self._numberings[numbering.number] = numbering
                self._numberings.move_to_end(numbering.number)
                while len(self._numberings) > NUMBERINGS:
                    self._numberings.popitem(last=False)
        self._compile()
        if self.manager is not None:
            self.manager.look()
        if self.server is not None:
            self.server.look()
        self.rendezvous.look()

    def _compile(self) -> None:
        made_of = (tuple(self.env.links), tuple(self._numberings))
        if made_of == self._table_of:
            return
        self._table_of = made_of
        self._table = compile_table(
            self.env.node,
            list(self.env.links),
            self.settings.link_seed,
            self.settings.scheme,
            {number: each.bits for number, each in self._numberings.items()},
        )
        self.env.install(self._table, self.forwarding)

    # Messages to and from the neighbours

    def _from_neighbour(self, link: str, sealed: bytes) -> None:
        message = self.exchange.open(link, sealed)
        if message is None:
            return
        match message:
            case Hello():
                self.neighbours.receive(link, message)
                if link in set(self.neighbours.up()):
                    self.database.compare_digest(link, message.state)
            case Summary() | Wanted() if link not in set(self.neighbours.up()):
                pass  # played back from elsewhere, perhaps: the answer is long, so nobody gets it
            case LinkState() | Summary() | Wanted():
                self.database.receive(link, message)
            case _:
                raise MalformedPacket("a message that is not for neighbours")

    # Messages across the fabric

    def _reach(self, node: str, filters: list[ZFilter], message: Message) -> None:
        if node == self.env.node:
            self.env.call_later(0, self._to_ourselves, message)
            return
        self.exchange.along(filters, message)

    def _to_ourselves(self, message: Message) -> None:
        self._dispatch(message)

    def _trace_way(self, link: str, packet: bytes) -> bool:
        return self.exchange.trace_way(self._table, link, packet, self.neighbours.name_of)

    def _deliver(self, packet: bytes) -> None:
        payload = payload_of(packet)
        handler = self.handlers.get(payload[0]) if payload else None
        if handler is None or not handler(payload[1:]):
            self.counters["false_deliveries"] += 1

    def _control_payload(self, sealed: bytes) -> bool:
        message = self.exchange.open("", sealed)
        if message is None:
            return True
        return self._dispatch(message)

    def _dispatch(self, message: Message) -> bool:
        """Hand a message to the function it is for; whether it was for this node."""
        match message:
            case Routes() | TreeReply():
                return self.attachment.receive(message)
            case RoutesTaken() | TreeRequest():
                if self.manager is not None:
                    self.manager.receive(message)
                return self.manager is not None
            case Latest() | Report():
                return self.client.receive(message)
            case Hello() | LinkState() | Summary() | Wanted() | Fragment():
                raise MalformedPacket("a message for neighbours came across the fabric")
        return self.rendezvous.receive(message) or (
            self.server is not None and self.server.receive(message)
        )


_DATA = bytes((Kind.DATA,))
_SAMPLED = bytes((SAMPLED,))
