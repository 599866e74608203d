"""What every suite of fault schedules is put to: it holds, and finds bugs planted on purpose."""

from __future__ import annotations

import os
import subprocess
import sys

from psirp_sim.runtime.schedules import run_schedule, run_suite

SEEDS = 50
"""The number of seeds within which a planted bug is found."""
SURVIVED = range(4)
"""`.ci/run` runs a hundred others of each suite, `.ci/long` thousands."""


def survives(suite, capsys, seeds=SURVIVED):
    """All invariants hold, and a quarter of the faults hit traffic."""
    summary = run_suite(suite, seeds)
    with capsys.disabled():
        print(f"\n{summary}")
    assert summary.failure is None, f"seed {summary.failure.seed}: {summary.failure.failure}"
    assert not summary.shortfall
    assert summary.hits > summary.faults / 4, "the faults must hit traffic to mean anything"


def finds(suite, bug, hint, first=0):
    """A suite of nodes with that bug fails.

    The hint is a seed known to find it, so that the test is quick; any of the first will do.
    """
    for seed in (hint, *range(first, first + SEEDS)):
        outcome = run_schedule(suite, seed)
        if outcome.failure is not None:
            print(f"seed {outcome.seed}: {outcome.failure}")
            # A bug that no longer fits the code it is planted in proves nothing by crashing.
            assert "Error left a core" not in outcome.failure, outcome.failure
            return
    raise AssertionError(f"{bug.__doc__} {SEEDS} seeds did not notice")


def repeats(suite, seed):
    """A schedule is the same in every process: no core goes by the order of a set."""
    kind = type(suite)
    code = (
        f"from {kind.__module__} import {kind.__name__} as Suite\n"
        "from psirp_sim.runtime.schedules import run_schedule\n"
        f"print(run_schedule(Suite(), {seed}).digest)"
    )
    one, other = (
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for hash_seed in ("1", "2")
    )  # fmt: skip
    assert one == other
