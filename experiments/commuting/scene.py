r"""The source's experiment, once: a publisher, two brokers, and subscribers that commute.

    publisher --- broker-0 --- broker-1 --- publisher       on a LAN
                         \     /
                     s0, s1, s2, ...      by the 802.11 preset, at one broker at a time

Nobody says goodbye: a departure cuts the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from experiments.commuting.broker import BROKER, PUBLISHER, Broker
from experiments.commuting.durable import DurableBroker
from experiments.commuting.fabric import Routing
from experiments.commuting.itinerary import draw
from experiments.commuting.ledger import Ledger
from experiments.commuting.ours import ProxyNode
from experiments.commuting.ours_client import ClientNode
from experiments.commuting.paper import PaperBroker
from experiments.commuting.publisher import Flooding
from experiments.commuting.subscriber import Subscriber
from experiments.commuting.worker import Tally
from identifiers import PublisherId
from mobility import SECRET_BYTES, ClientSettings, ProxySettings, Quota, Service
from mobility.ahead import AheadSettings
from mobility.identity import client_id
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.simulator import PRESETS, Simulator, stream

MODES = ("durable", "paper", "ours")
BROKERS = tuple(f"{BROKER}-{number}" for number in range(2))
PRESET = "wifi-b"
DRAIN = 30 * SECOND
"""After everybody has come back."""
BATCH = 1 << 10
"""In ours: bytes of messages in one answer, so that the first of them are soon there."""
_CONNECT = SECOND
"""When subscribers first connect."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is tried. Times are nanoseconds."""

    mode: str
    subscribers: int
    rate: float
    """Publications a second."""
    queue: int
    """Bytes; in the baselines of a broker, in ours of each subscriber at a broker."""
    shared: bool = True
    """Whether the subscribers of a baseline broker share its queue."""
    message_bytes: int = 100
    warm: int = 200 * SECOND
    """For how long subscribers commute before anything is published: the steady state."""
    duration: int = 240 * SECOND
    """For how long something is."""
    operation: int = 2 * MILLISECOND
    """What a broker takes to store or send a message."""
    patience: int = SECOND
    """Until a subscriber that acknowledges nothing counts as gone."""
    valid: int = 120 * SECOND
    """How long messages are kept for somebody who is away."""
    spread: int = 100 * MILLISECOND
    """In ours: what a route takes to be made."""
    prepare: bool = True
    """In ours: whether contexts are sent ahead."""


class Scene:
    """One run."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.world = world = Simulator(seed, keep_events=0)
        self._begin = 2 * _CONNECT + case.warm
        self._end = self._begin + case.duration
        self.names = [f"s{number}" for number in range(case.subscribers)]
        itineraries = {
            name: draw(
                stream(seed, f"itinerary {name}"), number, len(BROKERS), 2 * _CONNECT, self._end
            )
            for number, name in enumerate(self.names)
        }
        self.ledger = Ledger(lambda: world.now, itineraries)
        if case.mode == "ours":
            self._add_ours(stream(seed, "secrets"))
        else:
            self._add_baseline()
        for number, broker in enumerate(BROKERS):
            world.add_link(PUBLISHER, broker, PRESETS["lan"])
            for other in BROKERS[:number]:
                world.add_link(broker, other, PRESETS["lan"])
            for name in self.names:
                world.add_link(name, broker, PRESETS[PRESET])
        self._at = dict.fromkeys(self.names, "")
        self._before = Tally(0, 0)
        self.peak = 0
        """The most bytes that a broker was seen to hold."""
        world.engine.at(self._begin, self._look)
        for name, itinerary in itineraries.items():
            world.engine.at(_CONNECT, self._connect, name, BROKERS[itinerary.place])
            for absence in itinerary.absences:
                world.engine.at(absence.begins, self._leave, name)
                world.engine.at(absence.ends, self._connect, name, BROKERS[absence.place])

    def play(self) -> None:
        """Until everybody has come back and has what waited."""
        absences = (each.absences for each in self.ledger.itineraries.values())
        returns = [each[-1].ends for each in absences if each]
        self.world.run_until(max([self._end, *returns]) + DRAIN)

    @property
    def tally(self) -> Tally:
        """Of all brokers, since messages are published."""
        return self._total.since(self._before)

    @property
    def _total(self) -> Tally:
        return sum((each.tally for each in self.brokers), start=Tally(0, 0))

    def _look(self) -> None:
        if self.world.now == self._begin:
            self._before = self._total
        self.peak = max(self.peak, *(each.buffered for each in self.brokers))
        if self.world.now < self._end:
            self.world.engine.at(self.world.now + SECOND, self._look)

    @property
    def brokers(self) -> list[Broker | ProxyNode]:
        cores = [self.world.nodes[name].core for name in BROKERS]
        return [core for core in cores if isinstance(core, Broker | ProxyNode)]

    # Nodes

    def _add_baseline(self) -> None:
        case, ledger = self.case, self.ledger
        kind = DurableBroker if case.mode == "durable" else PaperBroker
        self.world.add_node(
            PUBLISHER,
            lambda env: Flooding(
                env, ledger, case.rate, self._begin, self._end, case.message_bytes
            ),
        )
        for name in BROKERS:
            self.world.add_node(name, lambda env: kind(env, case))
        for name in self.names:
            self.world.add_node(name, lambda env: Subscriber(env, ledger))

    def _add_ours(self, random: Random) -> None:
        case, ledger = self.case, self.ledger
        publisher = PublisherId(random.randbytes(PublisherId.SIZE))
        secrets = {name: random.randbytes(SECRET_BYTES) for name in self.names}
        clients = {name: client_id(secret) for name, secret in secrets.items()}
        self.world.add_node(
            PUBLISHER,
            lambda env: Routing(
                env, ledger, case.rate, self._begin, self._end, case.message_bytes, case.spread
            ),
        )
        settings = proxy_settings(case, random.randbytes(32))
        for name in BROKERS:
            self.world.add_node(
                name, lambda env: ProxyNode(env, publisher, clients, case, settings)
            )
        for name in self.names:
            self.world.add_node(
                name,
                lambda env: ClientNode(
                    env, ledger, publisher, secrets[env.node], client_settings(case)
                ),
            )

    # Moves

    def _subscriber(self, name: str) -> Subscriber | ClientNode:
        core = self.world.nodes[name].core
        assert isinstance(core, Subscriber | ClientNode)
        return core

    def _connect(self, name: str, broker: str) -> None:
        self._reach(name, broker, reached=True)
        moved = self._at[name] not in ("", broker)
        if moved and self._begin <= self.world.now < self._end:
            self.ledger.reconnects(name)
        self._at[name] = broker
        self._subscriber(name).connect(broker)

    def _leave(self, name: str) -> None:
        self._reach(name, self._at[name], reached=False)
        self.ledger.departs(name)
        self._subscriber(name).leave()

    def _reach(self, name: str, broker: str, *, reached: bool) -> None:
        for way in ((name, broker), (broker, name)):
            self.world.channels[way].blocked = not reached


def proxy_settings(case: Case, key: bytes) -> ProxySettings:
    """What is buffered ahead of a client is within the same quota."""
    return ProxySettings(
        ahead=AheadSettings(on=case.prepare, key=key, context_bytes=case.queue, welcome=BATCH)
    )


def client_settings(case: Case) -> ClientSettings:
    """The quota is the queue, of each client; messages are not counted."""
    quota = Quota(1_000_000, case.queue)
    service = Service(keep=case.valid / SECOND, topic=quota, client=quota)
    return ClientSettings(service=service, batch=BATCH)
