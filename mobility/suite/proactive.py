"""The fault schedules of preparation: the same clients, model and care, and proxies that prepare.

The neighbour graph changes under way: it ages, has few places, and is lost with disks. Proxies
refuse under pressure, some clients never come back, and now and then somebody without a pass speaks
up. Besides what holds of clients that move:

* what was prepared, refused or lost never shows to a client, except in time: the model is the same;
* no proxy has more neighbours, contexts or bytes than its settings say; no secret is in a word;
* what `witness` says about who is told what;
* once all is quiet, a context is passive, of a client that is live at its proxy, and at a neighbour
  of that; nobody else keeps a context, a buffer or a subscription, in memory or on disk;
* of all hand-offs of a run some are prepared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mobility.ahead.settings import AheadSettings
from mobility.ahead.waiting import Waiting, Warmth
from mobility.ahead.words import PASS_BYTES, Contexts, Copy, Drop, encode
from mobility.client import MobileClient, Stage
from mobility.identity import SECRET_BYTES, client_id
from mobility.proxy import MobilityProxy
from mobility.service import Service
from mobility.settings import ClientSettings, ProxySettings
from mobility.suite import MobilitySuite
from mobility.suite.nodes import ProxyNode
from mobility.suite.system import SimulatedAccessPoint, SimulatedSubscription
from mobility.suite.trial import ALIVE, MobilityTrial
from mobility.suite.witness import Witness
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Changes, Core, Environment
from psirp_sim.runtime.schedules import FaultKind, InvariantViolated, Trial
from psirp_sim.runtime.schedules.faults import Held
from psirp_sim.runtime.simulator import stream

FEW = 20
"""Hand-offs of which none may be prepared."""
ROOM = 1_000
"""Bytes by which subscriptions alone may exceed what contexts may have."""
_ROOM = b"mobility/ahead/"


class ProactiveSuite(MobilitySuite):
    """The suite `proactive`; a test gives it cores with planted bugs."""

    name = "proactive"
    summary = "contexts one hop ahead: never noticed but in time, and nothing left behind"
    most_faults = 12

    def __init__(
        self,
        client: type[MobileClient] = MobileClient,
        proxy: type[MobilityProxy] = MobilityProxy,
    ) -> None:
        super().__init__(client, proxy)
        self.done: Counter[str] = Counter()
        """What the proxies of all trials counted."""

    def trial(self, seed: int) -> Trial:
        return ProactiveTrial(seed, self)

    def conclude(self) -> str:
        """What the trials came to together."""
        prepared, unprepared = self.done["prepared"], self.done["unprepared"]
        moves = prepared + unprepared
        if moves > FEW and not prepared:
            raise InvariantViolated(f"none of {moves} hand-offs was prepared")
        share = 100 * prepared / moves if moves else 0
        return (
            f"{moves} hand-offs of which {prepared} were prepared ({share:.0f} %), "
            f"{self.done['contexts_refused']} contexts refused, {self.done['shed']} shed, "
            f"{self.done['lapsed']} lapsed"
        )


class ProactiveTrial(MobilityTrial):
    """One world in which proxies prepare."""

    suite: ProactiveSuite
    duration = 6 * SECOND
    patience = 300 * SECOND

    def __init__(self, seed: int, suite: ProactiveSuite) -> None:
        self._chance = stream(seed, "proactive trial")
        self.leavers = [f"leaver{n}" for n in range(self._chance.choice([0, 0, 1, 2]))]
        self.witness = Witness(self)
        super().__init__(seed, suite)

    def _proxy_settings(self) -> ProxySettings:
        chance = self._chance
        ahead = AheadSettings(
            on=True,
            neighbours=chance.choice([1, 2, 3, 8, 8]),
            age=chance.choice([1_500 * MILLISECOND, 3 * SECOND, 3_600 * SECOND]),
            contexts=chance.choice([2, 1_000, 1_000]),
            topics=chance.choice([3, 1_000, 1_000]),
            share=chance.choice([1, 1_000, 1_000]),
            bytes=chance.choice([1_500, 1 << 30, 1 << 30]),
            context_bytes=chance.choice([500, 1 << 20]),
            lapse=3 * SECOND,
            grace=chance.choice([50, 400]) * MILLISECOND,
            retry_first=60 * MILLISECOND,
            retry_most=400 * MILLISECOND,
            tries=chance.choice([4, 1_000]),
            window=chance.choice([1, 4]),
            word_bytes=chance.choice([300, 16 << 10]),
            welcome=chance.choice([200, 16 << 10]),
        )
        return ProxySettings(relay_time=SECOND, ahead=ahead)

    def _build(self) -> None:
        super()._build()
        chance = self._chance
        for name in self.clients:
            for _ in range(chance.randint(2, 6)):
                self.world.engine.at(chance.randrange(self.duration), self._move, name)
        for name in self.leavers:
            self.secrets[name] = chance.randbytes(SECRET_BYTES)
            self.world.add_node(name, self._boot)
            for proxy in self.proxies:
                self._link(name, proxy)
        for _ in range(chance.choice([0, 3])):
            self.world.engine.at(chance.randrange(self.duration), self._lie)

    def _boot(self, env: Environment) -> Core:
        if env.node in self.leavers:
            return LeaverNode(env, self)
        return PreparingNode(env, self) if env.node in self.proxies else super()._boot(env)

    def anywhere(self, client: str) -> str:
        # Most go back and forth among a few places, as people do.
        place = super().anywhere(client)
        return place if self._chance.random() < 0.3 else self.proxies[self.proxies.index(place) % 3]

    def _lie(self) -> None:
        """Somebody without a pass speaks in the name of a proxy."""
        chance = self._chance
        name, liar = chance.sample(self.proxies, 2)
        node = self.world.nodes[name].core
        client = client_id(self.secrets[chance.choice(self.clients)])
        change = chance.choice([Copy, Drop])
        fields = {"client": client, "epoch": 1 << 40, "nonce": 1, "serial": 1 << 60}
        topics = {"topics": dict.fromkeys(self.system.topics)} if change is Copy else {}
        word = Contexts(
            call=1, proxy=liar, token=bytes(PASS_BYTES), changes=(change(**fields, **topics),)
        )
        if isinstance(node, PreparingNode) and not self.world.nodes[name].paused:
            node.receive(liar, encode(word))

    # What goes wrong besides

    def faults(self) -> Sequence[FaultKind]:
        down = Held(self.world.crash, self.world.restart)

        def kept(name: str) -> int:
            core = self.world.nodes[name].core
            return len(core.proxy.ahead.contexts) if isinstance(core, PreparingNode) else 0

        def unbound(name: str) -> int:
            """Contexts of a proxy that has given no client its word."""
            core = self.world.nodes[name].core
            free = isinstance(core, PreparingNode) and not core.proxy.handlers
            return kept(name) if free else 0

        def crash(name: str) -> None:
            down.begin(name)
            self.observe()

        def lose_disk(name: str) -> None:
            if unbound(name):
                crash(name)
                self.witness.disk_lost(name)
                self.world.wipe(name)
            else:
                crash(name)

        def restart(name: str) -> None:
            down.end(name)
            self.observe()

        def press(is_so: bool, name: str) -> None:
            core = self.world.nodes[name].core
            if isinstance(core, PreparingNode):
                core.proxy.ahead.under_pressure(is_so)

        def unharmed(name: str) -> int:
            return 0

        names = self.proxies
        disk = FaultKind("disk-with-context", names, lose_disk, restart, unbound, unharmed, True)
        return [
            *super().faults(),
            FaultKind("crash-with-context", names, crash, restart, kept, unharmed, aimed=True),
            disk,
            FaultKind(
                "pressure",
                names,
                lambda name: press(True, name),
                lambda name: press(False, name),
                kept,
                unharmed,
                aimed=True,
            ),
        ]

    # What must hold

    @property
    def preparing(self) -> list[tuple[str, MobilityProxy]]:
        """Every proxy that is up."""
        found = [(name, self.world.nodes[name].core) for name in self.proxies]
        return [(name, core.proxy) for name, core in found if isinstance(core, PreparingNode)]

    def check(self) -> None:
        super().check()
        for name, proxy in self.preparing:
            ahead, most = proxy.ahead, proxy.ahead.settings
            if len(ahead.neighbours.known) > most.neighbours:
                raise InvariantViolated(f"{name} has {len(ahead.neighbours.known)} neighbours")
            if len(ahead.contexts) > most.contexts:
                raise InvariantViolated(f"{name} keeps {len(ahead.contexts)} contexts")
            if ahead.contexts.bytes > most.bytes + ROOM:
                raise InvariantViolated(f"{name} keeps {ahead.contexts.bytes} bytes of contexts")

    def _unsettled(self) -> str | None:
        return super()._unsettled() or self._unsettled_contexts()

    def _unsettled_contexts(self) -> str | None:
        places = {
            core.client.id: (core.client.proxy, core.client.claim, set(core.client.flows))
            for _, core in self.cores
            if core.client.stage is Stage.LIVE
        }
        proxies = dict(self.preparing)
        for name, proxy in proxies.items():
            for client, context in proxy.ahead.contexts.kept.items():
                place, claim, topics = places.get(client, ("", None, set()))
                if context.waiting is not None:
                    return f"{name} buffers for a client that is at {place or 'no proxy'}"
                if context.owner != place or context.copy.claim != claim:
                    return f"{name} has a context of {context.owner}, the client is at {place}"
                if set(context.copy.topics) != topics:
                    return f"{name} has a context with other topics than its client"
                if name not in proxies[place].ahead.neighbours.known:
                    return f"{name} has a context of {place} and is no neighbour"
            for client in proxy.ahead.preparing.clients:
                if places.get(client, ("",))[0] != name:
                    return f"{name} prepares for a client that is elsewhere"
            counted = sum(context.bytes for context in proxy.ahead.contexts.kept.values())
            if counted != proxy.ahead.contexts.bytes:
                return f"{name} counts {proxy.ahead.contexts.bytes} bytes, and has {counted}"
            left = self._left_on_disk(name, proxy)
            if left is not None:
                return left
        for topic in self.system.topics.values():
            if any(map(_is_left, topic.subscriptions)):
                return f"somebody is subscribed to {topic.name} for a client that is elsewhere"
        if self.proxy_settings.ahead.tries > FEW:
            for client, (place, *_) in places.items():
                if (untold := self.witness.untold(client, place)) is not None:
                    return untold
        return None

    def _left_on_disk(self, name: str, proxy: MobilityProxy) -> str | None:
        keys = [key[len(_ROOM) :] for key, _ in self.world.nodes[name].storage.scan(_ROOM)]
        kept = {b"context/" + bytes.fromhex(client) for client in proxy.ahead.contexts.kept}
        known = {b"neighbour/" + each.encode() for each in proxy.ahead.neighbours.known}
        left = set(keys) - kept - known
        return f"{name} has {min(left)!r} on its disk" if left else None

    def finish(self) -> None:
        for _, proxy in self.preparing:
            self.suite.done.update(proxy.ahead.counters)
        super().finish()


def _is_left(subscription: SimulatedSubscription) -> bool:
    """Whether it was made for a client that might come."""
    listener = subscription.listener
    inherited = isinstance(listener, Waiting) and listener.heir is not None
    return subscription.lives and isinstance(listener, Waiting | Warmth) and not inherited


class PreparingNode(ProxyNode):
    """A proxy whose words are overheard."""

    trial: ProactiveTrial

    def __init__(self, env: Environment, trial: ProactiveTrial) -> None:
        super().__init__(env, trial)
        self.trial = trial

    def start(self) -> None:
        super().start()
        self.trial.witness.born(self.env.node, self.proxy)

    def receive(self, link: str, packet: bytes) -> None:
        self.trial.witness.hears(self.env.node, self.proxy, link, packet)

    def _send(self, peer: str, packet: bytes) -> None:
        if peer in self.trial.proxies:
            self.trial.witness.says(self.env.node, self.proxy, peer, packet)
        super()._send(peer, packet)


class LeaverNode:
    """A client that is gone for good before the trial is over, without a word."""

    def __init__(self, env: Environment, trial: ProactiveTrial) -> None:
        self.env = env
        self.trial = trial
        self.gone_at = trial.duration * 2 // 3
        access = SimulatedAccessPoint(trial.system, env, self._broken)
        settings = ClientSettings(
            service=Service(keep=2.0), alive=ALIVE, retry_first=60 * MILLISECOND
        )
        secret = trial.secrets[env.node]
        self.client = MobileClient(
            env, secret, access, self._send, _consume, lambda notice: None, settings
        )

    def start(self) -> None:
        self.client.start()
        for topic in self.trial.system.topics:
            self.client.subscribe(topic)
        self._broken()

    def _broken(self) -> None:
        left = self.gone_at - self.trial.world.now
        self.client.connection_lost()
        if left > 0:
            self.client.move_in(self.trial.anywhere(self.env.node))
            self.env.call_later(self.trial._chance.randint(left // 8, left), self._broken)

    def receive(self, link: str, packet: bytes) -> None:
        self.client.receive(link, packet)

    def stop(self) -> None:
        self.client.stop()

    def _send(self, peer: str, packet: bytes) -> None:
        self.env.links[peer].send(packet)


def _consume(event: object) -> Changes:
    return {}
