"""Fault schedules: random faults from a seed, invariants after every step, the least that fails.

`faults` says what can go wrong, `suite` what a suite of them provides, `runner` runs one
schedule or many, `shrink` makes a failing one small.
"""

from psirp_sim.runtime.schedules.faults import Fault, FaultKind, network_faults, node_faults
from psirp_sim.runtime.schedules.runner import Outcome, Summary, run_schedule, run_suite
from psirp_sim.runtime.schedules.shrink import shrink
from psirp_sim.runtime.schedules.suite import InvariantViolated, Suite, Trial

__all__ = [
    "Fault",
    "FaultKind",
    "InvariantViolated",
    "Outcome",
    "Suite",
    "Summary",
    "Trial",
    "network_faults",
    "node_faults",
    "run_schedule",
    "run_suite",
    "shrink",
]
