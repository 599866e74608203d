"""Publishing and subscribing at a node: what applications use of the fabric.

An item is named by scope and rendezvous id. `publish` gives a version its place in the stream of
the item, keeps it and sends it to whoever listens (`publications.publisher`); `subscribe` hands
every version on, once and in order, or says that some cannot be had (`publications.subscriber`,
`publications.events`). Whatever happens to the fabric in between is made good behind these calls.

Applications under asyncio use `runtime.client.FabricClient`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from psirp_sim.publications.envelope import Keys
from psirp_sim.publications.publisher import Publisher
from psirp_sim.publications.settings import PublicationSettings
from psirp_sim.publications.subscriber import Subscriber
from psirp_sim.publications.tracing import Tracing
from psirp_sim.rendezvous.client import RendezvousClient
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.message import Message
from psirp_sim.wire.publications import Latest, Report
from psirp_sim.wire.sealing import FabricKeys
from psirp_sim.zfilters import ZFilter

COUNTED = (
    "delivered", "spoiled", "no_signature", "wrong_key", "wrong_signature", "repeated_records",
    "no_room", "evicted", "conflicts", "outdated_epoch",
)  # fmt: skip
"""What becomes of publications; each is counted from 0."""


class Client:
    """What one node publishes and subscribes to."""

    def __init__(
        self,
        env: Environment,
        settings: PublicationSettings,
        keys: FabricKeys,
        rendezvous: RendezvousClient,
        *,
        domain: str,
        life: Callable[[], int],
        transmit: Callable[[list[ZFilter], bytes, bool], None],
        along: Callable[[list[ZFilter], Message], None],
    ) -> None:
        """`life` is the number of this node's; `transmit` sends a payload along filters, and says
        whether forwarding nodes are to write traces of it; `along` sends a message."""
        self._env = env
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.keys_of: Callable[[bytes], Keys | None] = lambda sid: ()
        """The keys of the zone that a scope belongs to; None while they are not known."""
        tracing = Tracing(env, domain)
        self.publisher = Publisher(
            env,
            settings,
            keys,
            rendezvous,
            tracing,
            life=life,
            transmit=transmit,
            along=along,
            at_home=self._at_home,
        )
        self.subscriber = Subscriber(
            env,
            settings,
            keys,
            rendezvous,
            tracing,
            self.counters,
            life=life,
            keys_of=lambda sid: self.keys_of(sid),
            along=along,
            at_home=self._at_home,
        )
        # What applications call.
        self.offer = self.publisher.offer
        self.publish = self.publisher.publish
        self.withdraw = self.publisher.withdraw
        self.subscribe = self.subscriber.subscribe
        self.unsubscribe = self.subscriber.unsubscribe
        self.offers = self.publisher.offers
        # What a node calls.
        self.payload = self.subscriber.payload
        self.renew = self.publisher.renew

    def status(self) -> dict[str, object]:
        """What `psph fabric status` shows."""
        return {
            "published": len(self.offers),
            "history_bytes": self.publisher.shelf.bytes,
            "subscriptions": len(self.subscriber.subscriptions),
            "streams": sum(len(each) for each in self.subscriber.receptions.values()),
            "waiting_bytes": self.subscriber.waiting_bytes,
            "counters": dict(self.counters),
        }

    def receive(self, message: Message) -> bool:
        """A message about publications; whether it is for us."""
        match message:
            case Latest():
                return self.subscriber.said(message)
            case Report(node=node) if node == self._env.node:
                return self.publisher.reported(message)
        return False

    def _at_home(self, what: bytes | Message) -> None:
        """Between a publisher and a listener on this node; later, as if it had come over a link."""
        self._env.call_later(0, self._from_home, what)

    def _from_home(self, what: bytes | Message) -> None:
        if isinstance(what, bytes):
            self.payload(what)
        else:
            self.receive(what)
