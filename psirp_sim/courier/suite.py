"""The fault schedules of Courier: two to five nodes, crashes, pauses, partitions, storms.

What must hold:

* **safety**, after every step: what a node has taken from a neighbour is exactly the first n
  messages posted to it, in order, each once; no number is accepted twice; nothing is sent
  beyond the window;
* **liveness**, once the faults are over: every accepted message arrives, every outbox empties.
"""

from __future__ import annotations

from collections.abc import Sequence

from psirp_sim.courier.core import WINDOW, Courier
from psirp_sim.runtime.durations import MICROSECOND, MILLISECOND, SECOND
from psirp_sim.runtime.environment import Changes, Environment
from psirp_sim.runtime.schedules import (
    FaultKind,
    InvariantViolated,
    Trial,
    network_faults,
    node_faults,
)
from psirp_sim.runtime.simulator import Clock, Independent, LinkProfile, Simulator, Uniform, stream

_TAKEN = b"taken "


class _User:
    """A core: a Courier whose user counts what it takes, independently of Courier's numbers."""

    def __init__(self, env: Environment, trial: CourierTrial) -> None:
        self.env = env
        self.trial = trial
        self.courier = trial.courier(env, self._take)

    def start(self) -> None:
        self.taken = {link: len(self._stored(link)) for link in self.env.links}
        self.courier.start()

    def receive(self, link: str, packet: bytes) -> None:
        if packet[:1] == b"M":
            self.trial.arriving.append((self, link, int.from_bytes(packet[1:9])))
        self.courier.receive(link, packet)

    def stop(self) -> None:
        self.courier.stop()

    def _take(self, link: str, number: int, payload: bytes) -> Changes:
        self.taken[link] += 1
        self.trial.taken.append((link, self.env.node, self.taken[link], payload))
        return {_TAKEN + link.encode() + self.taken[link].to_bytes(8): payload}

    def _stored(self, link: str) -> list[bytes]:
        return [payload for _, payload in self.env.storage.scan(_TAKEN + link.encode())]


class CourierTrial:
    """One world, its workload, and the model it is compared with."""

    duration = 4 * SECOND
    patience = 60 * SECOND

    def __init__(self, seed: int, courier: type[Courier]) -> None:
        self.courier = courier
        self.world = Simulator(seed)
        self.taken: list[tuple[str, str, int, bytes]] = []
        """Sender, receiver, how many the receiver has taken with this one, payload."""
        self.arriving: list[tuple[_User, str, int]] = []
        self._posted: dict[tuple[str, str], dict[int, list[bytes]]] = {}
        """Every payload a number was given to; a crash may free a number that was not accepted."""
        self._accepted: dict[tuple[str, str], dict[int, bytes]] = {}
        self._random = stream(seed, "courier trial")
        self._build()

    def _build(self) -> None:
        random = self._random
        names = [f"n{index}" for index in range(random.randint(2, 5))]
        for name in names:
            drift = random.randint(-100_000, 100_000)
            skew = random.randint(-SECOND, SECOND)
            self.world.add_node(name, lambda env: _User(env, self), Clock(skew, drift))
        for index, name in enumerate(names[1:], 1):
            self._link(random.choice(names[:index]), name)
        for _ in range(random.randint(150, 500)):
            sender, receiver = random.choice(list(self._posted))
            moment = random.randrange(self.duration)
            payload = random.randbytes(random.randint(8, 40))
            self.world.engine.at(moment, self._post, sender, receiver, payload)

    def _link(self, one: str, other: str) -> None:
        random = self._random
        profile = LinkProfile(
            delay=Uniform(200 * MICROSECOND, random.randint(1, 30) * MILLISECOND),
            loss=Independent(random.choice([0.0, 0.02, 0.2])),
            duplicate=random.choice([0.0, 0.05]),
            reorder=random.choice([0.0, 0.1]),
        )
        self.world.add_link(one, other, profile)
        for pair in ((one, other), (other, one)):
            self._posted[pair] = {}
            self._accepted[pair] = {}

    def _post(self, sender: str, receiver: str, payload: bytes) -> None:
        node = self.world.nodes[sender]
        if not isinstance(node.core, _User) or node.paused:
            return

        def accepted(number: int) -> None:
            known = self._accepted[sender, receiver]
            if number in known:
                raise InvariantViolated(
                    f"{sender} accepted two messages to {receiver} as number {number}"
                )
            known[number] = payload

        # Noted first: a careless courier may call back before it returns.
        number = node.core.courier.outgoing[receiver].next_number
        self._posted[sender, receiver].setdefault(number, []).append(payload)
        node.core.courier.post(receiver, payload, accepted)

    def faults(self) -> Sequence[FaultKind]:
        return [
            *node_faults(self.world, self.world.nodes),
            *network_faults(self.world, self.world.channels),
        ]

    def check(self) -> None:
        for sender, receiver, count, payload in self.taken:
            accepted = self._accepted[sender, receiver].get(count)
            posted = self._posted[sender, receiver].get(count, [])
            if payload not in ([accepted] if accepted is not None else posted):
                raise InvariantViolated(
                    f"{receiver} took as its message {count} from {sender} what was not posted "
                    f"as number {count}"
                )
        self.taken.clear()
        for user, link, number in self.arriving:
            durable = user.courier.incoming[link].durable
            if number > durable + WINDOW:
                raise InvariantViolated(
                    f"{link} sent message {number} to {user.env.node} beyond the window: "
                    f"{durable} are acknowledged"
                )
        self.arriving.clear()

    def _unsettled(self) -> str | None:
        for (sender, receiver), accepted in self._accepted.items():
            core = self.world.nodes[sender].core
            if not isinstance(core, _User):
                return f"{sender} is down"
            outgoing = core.courier.outgoing[receiver]
            if outgoing.waiting or outgoing.writing:
                return f"{len(outgoing.waiting)} messages from {sender} wait for {receiver}"
            there = self.world.nodes[receiver].core
            taken = there.taken[sender] if isinstance(there, _User) else 0
            if accepted and taken < max(accepted):
                return f"{receiver} took {taken} of {max(accepted)} messages from {sender}"
        return None

    def settled(self) -> bool:
        return self._unsettled() is None

    def finish(self) -> None:
        unsettled = self._unsettled()
        if unsettled is not None:
            raise InvariantViolated(f"{unsettled}, and the faults are long over")


class CourierSuite:
    """The suite `courier`; a test gives it couriers with planted bugs."""

    name = "courier"
    summary = "messages between neighbours: each once, in order, none lost"
    most_faults = 24

    def __init__(self, courier: type[Courier] = Courier) -> None:
        self._courier = courier

    def trial(self, seed: int) -> Trial:
        return CourierTrial(seed, self._courier)
