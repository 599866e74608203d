"""The baseline brokers: what the source says of them, one subscriber at a time."""

from __future__ import annotations

import pytest

from experiments.commuting import scene
from experiments.commuting.itinerary import Absence, Itinerary
from experiments.commuting.scene import Case, Scene
from experiments.commuting.words import Unsubscribe, encode
from psirp_sim.runtime.durations import SECOND

RATE = 25.0
"""Five messages a second are for each subscriber."""


@pytest.fixture
def commute(monkeypatch):
    """Plays a scene in which subscribers go where they are told; the scene."""

    def play(mode, *plans, brokers=2, until=None, **changes):
        """A plan is a list of (begins, ends, place), in seconds."""
        monkeypatch.setattr(scene, "BROKERS", tuple(f"broker-{n}" for n in range(brokers)))

        def draw(random, number, places, since, until):
            at, absences = 0, []
            for begins, ends, place in plans[number]:
                absences.append(
                    Absence(int(begins * SECOND), int(ends * SECOND), place, place != at)
                )
                at = place
            return Itinerary(40, 0, tuple(absences))

        monkeypatch.setattr(scene, "draw", draw)
        settings = {"warm": 0, "duration": 60 * SECOND, "queue": 100_000, **changes}
        played = Scene(Case(mode, len(plans), RATE, **settings), 5)
        if until is None:
            played.play()
        else:
            played.world.run_until(int(until * SECOND))
        return played

    return play


def lost(played, name="s0"):
    """When what it did not get was published, in seconds."""
    ledger = played.ledger
    missing = [id for id in ledger.wanted(name) if id not in ledger.received[name]]
    return [ledger.published[id - 1][0] / SECOND for id in missing]


def twice(played, name="s0"):
    ledger = played.ledger
    copies = [id for id, times in ledger.received[name].items() if times > 1]
    return [ledger.published[id - 1][0] / SECOND for id in copies]


@pytest.mark.parametrize("mode", ["durable", "paper", "ours"])
def test_nothing_is_lost_or_doubled_by_who_comes_back_to_the_same_broker(commute, mode):
    played = commute(mode, [(10, 20, 0), (30, 30.3, 0)])
    assert len(played.ledger.wanted("s0")) > 200
    assert lost(played) == twice(played) == []
    assert played.ledger.out_of_order == 0


def test_durable_misses_the_hand_off_of_a_first_visit(commute):
    played = commute("durable", [(10, 20, 1)])
    assert len(lost(played)) > 30
    assert all(9.9 < at < 20.1 for at in lost(played))
    assert twice(played) == []


def test_durable_doubles_what_was_had_elsewhere(commute):
    played = commute("durable", [(10, 20, 1), (40, 50, 0)])
    assert all(9.9 < at < 20.1 for at in lost(played))  # of the first visit
    # What it had at broker 1 waits at broker 0 as well.
    assert len(twice(played)) > 80
    assert all(19.9 < at < 40.1 for at in twice(played))


def test_durable_brings_nothing_that_has_expired(commute):
    played = commute("durable", [(10, 11, 1), (40, 50, 0)], valid=15 * SECOND)
    assert all(at > 34 for at in twice(played))
    assert twice(played)


def test_a_subscriber_overwrites_what_is_kept_for_another(commute):
    stays_away = [(5, 59, 0)]
    played = commute("durable", [(20, 30, 0)], stays_away, queue=4_000)
    assert lost(played)
    assert not lost(commute("durable", [(20, 30, 0)], stays_away, queue=6_000, shared=False))


def test_paper_is_reactive_first_and_then_prepared(commute):
    played = commute("paper", [(10, 20, 1), (30, 40, 0)])
    old, new = played.brokers
    assert (new.prepared, old.prepared) == ({True: 0, False: 1}, {True: 1, False: 0})
    assert lost(played) == twice(played) == []
    assert played.ledger.out_of_order == 0
    assert old.neighbours.names == ("broker-1",)
    assert new.neighbours.names == ("broker-0",)


def test_paper_loses_what_is_overwritten(commute):
    played = commute("paper", [(10, 20, 1), (30, 40, 0)], queue=2_000)
    assert all(9.9 < at < 20 or 29.9 < at < 40 for at in lost(played))
    assert len(lost(played)) > 40
    assert twice(played) == []


def test_paper_frees_what_was_buffered_ahead_of_who_did_not_come(commute):
    plan = [(5, 6, 1), (10, 11, 0), (20, 30, 0)]
    away = commute("paper", plan, until=29)
    ahead = away.brokers[1]
    assert ahead.records["s0"].buffered
    assert ahead.store.bytes > 3_000
    back = commute("paper", plan, until=31)
    ahead = back.brokers[1]
    assert not ahead.records["s0"].buffered
    assert ahead.store.bytes == 0
    assert ahead.vain > 3_000
    assert back.brokers[1].tally.vain == ahead.vain


def test_paper_deactivates_common_neighbours_and_deletes_at_the_others(commute):
    walk = [(5, 6, 1), (8, 9, 2), (11, 12, 0), (14, 17, 1), (20, 23, 2), (26, 29, 0)]
    played = commute("paper", walk, [], brokers=3, until=10)
    home, first, second = played.brokers
    # Broker 2 did not know of broker 0 when the subscriber came to it from broker 1.
    assert "s0" not in home.records
    assert second.records["s0"].here
    played.world.run_until(int(16.5 * SECOND))
    common = second.records["s0"]
    assert common.buffered
    assert common.bytes > 0
    played.world.run_until(18 * SECOND)
    assert second.records["s0"] is common
    assert not common.buffered
    assert common.bytes == 0
    played.world.run_until(40 * SECOND)
    assert lost(played) == twice(played) == []
    assert {*home.neighbours.names} == {"broker-1", "broker-2"}
    assert home.records["s0"].here
    assert first.records["s0"].dummy
    assert second.records["s0"].dummy
    assert sum(broker.prepared[True] for broker in played.brokers) == 3


def test_paper_gives_up_who_is_away_too_long(commute):
    plan = [(5, 6, 1), (8, 9, 0), (15, 58, 0)]
    played = commute("paper", plan, until=50, valid=20 * SECOND)
    assert [broker.records.get("s0") for broker in played.brokers] == [None, None]
    assert [broker.store.bytes for broker in played.brokers] == [0, 0]


def test_paper_forgets_who_unsubscribes(commute):
    played = commute("paper", [(5, 6, 1), (8, 9, 0)], until=20)
    assert all("s0" in broker.records for broker in played.brokers)
    subscriber = played.world.nodes["s0"].core
    subscriber._wires["broker-0"].send(encode(Unsubscribe()))
    played.world.run_for(SECOND)
    assert not any("s0" in broker.records for broker in played.brokers)


def test_ours_is_prepared_on_the_way_back_and_loses_nothing(commute):
    played = commute("ours", [(10, 20, 1), (30, 40, 0), (45, 55, 1)], warm=5 * SECOND)
    assert lost(played) == twice(played) == []
    assert sum(broker.tally.prepared for broker in played.brokers) == 2
    assert sum(broker.tally.unprepared for broker in played.brokers) == 1
    assert sum(broker.tally.operations for broker in played.brokers) > 0


def test_the_publisher_goes_no_faster_than_the_brokers_take(commute):
    fast = commute("durable", [], [])
    slow = commute("durable", [], [], operation=200_000_000)
    assert len(fast.ledger.published) == 1_500
    assert len(slow.ledger.published) < 1_200
    assert lost(slow) == []
