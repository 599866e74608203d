"""The harness itself: reproducible, honest about hits, and able to make a failure small."""

from __future__ import annotations

from psirp_sim.courier.suite import CourierSuite
from psirp_sim.runtime.durations import MILLISECOND, SECOND
from psirp_sim.runtime.schedules import Fault, run_schedule, run_suite, shrink
from psirp_sim.runtime.schedules.faults import generate
from psirp_sim.runtime.simulator import stream
from tests.psirp_sim.courier.planted import ForgetsItsCursor, ForgetsItsNextNumber, NeverRepeats


def test_a_seed_determines_the_schedule_and_all_that_follows():
    one, two = run_schedule(CourierSuite(), 11), run_schedule(CourierSuite(), 11)
    assert one == two
    assert one.faults
    assert run_schedule(CourierSuite(), 12).digest != one.digest


def test_generated_faults_begin_in_time_and_know_their_kind():
    trial = CourierSuite().trial(3)
    kinds = {kind.name: kind for kind in trial.faults()}
    seen = set()
    for seed in range(50):
        faults = generate(trial.faults(), trial.duration, 24, stream(seed, "test"))
        assert 1 <= len(faults) <= 24
        for fault in faults:
            assert 0 <= fault.begin < trial.duration
            assert 0 < fault.length <= trial.duration / 2
            assert fault.target in kinds[fault.kind].targets
            seen.add(fault.kind)
    assert seen == {"crash", "crash-in-write", "pause", "cut", "partition", "storm"}


def test_a_fault_in_an_empty_network_hits_nothing():
    after_all_traffic = Fault(50 * SECOND, 50 * SECOND + MILLISECOND, "crash", "n0")
    assert run_schedule(CourierSuite(), 5, [after_all_traffic]).hits == 0


def test_a_fault_amid_traffic_hits():
    amid = Fault(SECOND, 3 * SECOND, "pause", "n0")
    assert run_schedule(CourierSuite(), 5, [amid]).hits == 1


def test_an_aimed_fault_strikes_in_a_write():
    aimed = Fault(SECOND, 3 * SECOND, "crash-in-write", "n0")
    assert run_schedule(CourierSuite(), 5, [aimed]).hits == 1


def test_overlapping_faults_do_not_end_each_other():
    trial = CourierSuite().trial(5)
    world, kinds = trial.world, {kind.name: kind for kind in trial.faults()}
    world.run_for(0)
    kinds["cut"].begin("n0>n1")
    kinds["partition"].begin("n0=n1")
    kinds["partition"].end("n0=n1")
    assert world.channels["n0", "n1"].blocked
    assert not world.channels["n1", "n0"].blocked
    kinds["cut"].end("n0>n1")
    assert not world.channels["n0", "n1"].blocked
    kinds["crash"].begin("n0")
    kinds["crash-in-write"].begin("n0")
    kinds["crash"].end("n0")
    assert not world.nodes["n0"].up
    kinds["crash-in-write"].end("n0")
    assert world.nodes["n0"].up


def test_a_failure_is_shrunk_to_what_it_needs():
    suite = CourierSuite(ForgetsItsNextNumber)
    failing = run_suite(suite, range(50)).failure
    small = shrink(suite, failing)
    assert small.failure is not None
    assert len(small.faults) == 1
    assert small.faults[0].kind.startswith("crash")
    assert run_schedule(suite, small.seed, small.faults) == small


def test_a_failure_without_any_fault_shrinks_to_none():
    suite = CourierSuite(NeverRepeats)
    lossy = next(
        outcome
        for outcome in (run_schedule(suite, seed, []) for seed in range(50))
        if outcome.failure
    )
    assert shrink(suite, run_schedule(suite, lossy.seed)).faults == ()


def test_the_events_before_a_failure_are_kept():
    failure = run_suite(CourierSuite(ForgetsItsCursor), range(50)).failure
    assert any("crash" in line for line in failure.events)
    assert str(failure.faults[0]).startswith(failure.faults[0].kind)


def test_an_exception_that_leaves_a_core_is_a_failure():
    class Raises(NeverRepeats):
        def _on_message(self, link, number, payload):
            raise ZeroDivisionError("planted")

    failure = run_suite(CourierSuite(Raises), range(5)).failure
    assert "ZeroDivisionError left a core: planted" in failure.failure


def test_more_decides_how_long_a_suite_goes_on():
    assert run_suite(CourierSuite(), range(50), lambda outcome: outcome.seed < 2).seeds == 3
