"""What loss costs Courier, the teaching protocol: transmissions and time per message.

One message is on its way at a time, so the cost can be computed: a message is sent until it
and its acknowledgement both survive, 1 / (1 - p)^2 times on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from experiments.experiment import Claim, Context, Experiment, Plot, Row
from psirp_sim.courier.core import Courier
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.environment import Changes, Environment
from psirp_sim.runtime.simulator import Constant, Independent, LinkProfile, Simulator

SPACING = 60 * SECOND


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    loss: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
    messages: int = 2_000
    delay_ms: float = 10.0

    def __post_init__(self) -> None:
        if not all(0 <= loss <= 0.5 for loss in self.loss) or not self.loss:
            raise ValueError("loss lists probabilities between 0 and 0.5")
        if not 1 <= self.messages <= 100_000 or not 0 <= self.delay_ms <= 40:
            raise ValueError("messages lies between 1 and 100000, delay_ms between 0 and 40")


class _Clocked:
    """A core: a Courier that notes when each message was taken."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.courier = Courier(env, self._take)
        self.taken: list[tuple[int, int]] = []
        self.start = self.courier.start
        self.receive = self.courier.receive
        self.stop = self.courier.stop

    def _take(self, link: str, number: int, payload: bytes) -> Changes:
        self.taken.append((self.env.wall(), int.from_bytes(payload)))
        return {}


def run(parameters: Parameters, seed: int, context: Context) -> list[Row]:
    rows = []
    for index, loss in enumerate(parameters.loss):
        rows.append(_one_rate(parameters, loss, seed))
        context.progress((index + 1) / len(parameters.loss))
    return rows


def _one_rate(parameters: Parameters, loss: float, seed: int) -> Row:
    world = Simulator(seed)
    for name in ("sender", "receiver"):
        world.add_node(name, _Clocked)
    delay = Constant(round(parameters.delay_ms * MILLISECOND))
    world.add_link("sender", "receiver", LinkProfile(delay=delay, loss=Independent(loss)))
    world.run_for(0)
    sender, receiver = (world.nodes[name].core for name in ("sender", "receiver"))
    assert isinstance(sender, _Clocked)
    assert isinstance(receiver, _Clocked)
    for _ in range(parameters.messages):
        sender.courier.post("receiver", sender.env.wall().to_bytes(8))
        world.run_for(SPACING)
    delays = [taken - posted for taken, posted in receiver.taken]
    posted = [posted for _, posted in receiver.taken]
    return {
        "loss": loss,
        "sent_per_message": sender.courier.counters["sent"] / parameters.messages,
        "computed": 1 / (1 - loss) ** 2,
        "mean_delay_ms": fmean(delays) / MILLISECOND,
        "max_delay_ms": max(delays) / MILLISECOND,
        "lost": parameters.messages - len(set(posted)),
        "doubled": len(posted) - len(set(posted)),
    }


def claims(rows: Sequence[Row]) -> list[Claim]:
    worst = max(rows, key=lambda row: abs(row["sent_per_message"] / row["computed"] - 1))
    error = worst["sent_per_message"] / worst["computed"] - 1
    lost = sum(row["lost"] for row in rows)
    doubled = sum(row["doubled"] for row in rows)
    return [
        Claim(
            "exactly-once",
            "ours",
            "no message is lost or doubled at any rate of loss",
            holds=lost == doubled == 0,
            because=f"{lost:g} lost, {doubled:g} doubled",
        ),
        Claim(
            "cost-as-computed",
            "ours",
            "transmissions per message are within 10 % of 1 / (1 - p)^2",
            holds=abs(error) <= 0.1,
            because=f"furthest off at p = {worst['loss']:g}: {error:+.1%}",
        ),
    ]


_LABELS = {
    "loss": "loss (share of packets)",
    "sent_per_message": "transmissions (per message)",
}
EXPERIMENT = Experiment(
    name="courier-loss",
    summary="what loss costs the teaching protocol",
    parameters=Parameters(),
    quick=Parameters(messages=300),
    run=run,
    keys=("loss",),
    claims=claims,
    plots=(
        Plot("cost", x="loss", y="sent_per_message", labels=_LABELS),
        Plot("delay", x="loss", y="mean_delay_ms", labels=_LABELS),
    ),
)
