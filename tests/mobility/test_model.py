"""The harness's own account excuses what a bound cost, and nothing else."""

from __future__ import annotations

import pytest

from identifiers import Position, PublisherId
from mobility import Message
from mobility.events import Gap
from mobility.suite import MobilitySuite
from mobility.suite.system import SimulatedTopic
from psirp_sim.runtime.durations import MILLISECOND
from psirp_sim.runtime.schedules import InvariantViolated

QUIET = "quiet"
"""A topic that nobody publishes to but these tests."""
WRITER = PublisherId(bytes(16))


def told_that_the_last_is_missing(what, published, quota):
    """A client with that quota crashes, or pauses, for two seconds and moves. So much is published
    soon after that begins, and one more just before it is over."""
    trial = MobilitySuite().trial(11350)
    world, ledger = trial.world, trial.ledgers["client1"]
    trial.system.topics[QUIET] = SimulatedTopic(QUIET, history=0)
    trial.wanted["client1"].append(QUIET)
    ledger.quota, ledger.newest_go = quota, True
    fault = next(kind for kind in trial.faults() if kind.name == what)

    def publish(version):
        trial.system.publish(QUIET, Position(WRITER, 1, version), Message(b"."))

    world.run_for(200 * MILLISECOND)
    fault.begin("client1")
    for version in range(1, published + 1):
        world.run_for(10 * MILLISECOND)
        publish(version)
    world.run_for(1_900 * MILLISECOND)
    publish(published + 1)
    world.run_for(10 * MILLISECOND)
    fault.end("client1")
    ledger.left(world.now)
    ledger.at[QUIET, WRITER] = published
    ledger.consumed(Gap(QUIET, WRITER, 1, published + 1, published + 1, "quota"))


FAULTS = pytest.mark.parametrize("what", ["crash", "pause"])


@FAULTS
def test_what_came_while_a_client_was_down_may_have_filled_its_quota(what):
    told_that_the_last_is_missing(what, published=8, quota=8)


@FAULTS
def test_a_quota_that_was_not_filled_excuses_nothing(what):
    with pytest.raises(InvariantViolated, match="was told that 8 is missing"):
        told_that_the_last_is_missing(what, published=7, quota=8)
