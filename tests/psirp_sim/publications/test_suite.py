"""Publications survive their fault schedules, and those with a planted bug do not."""

from __future__ import annotations

import time

import pytest

from psirp_sim.publications.suite import PublicationsSuite
from psirp_sim.runtime.schedules import run_schedule, run_suite
from tests.psirp_sim.publications.planted import PLANTED

SEEDS = 50
SECONDS = 30


def test_publications_survive(capsys):
    begun = time.monotonic()
    summary = run_suite(
        PublicationsSuite(), range(SEEDS), lambda outcome: time.monotonic() - begun < SECONDS
    )
    with capsys.disabled():
        print(f"\n{summary}")
    assert summary.failure is None, f"seed {summary.failure.seed}: {summary.failure.failure}"
    assert summary.hits > summary.faults / 4, "the faults must hit traffic to mean anything"


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    # The hint is a seed known to find it, so that the test is quick; any of the first will do.
    outcome = None
    for seed in (hint, *range(SEEDS)):
        outcome = run_schedule(PublicationsSuite(bug), seed)
        if outcome.failure is not None:
            break
    assert outcome.failure is not None, f"{bug.__doc__} {SEEDS} seeds did not notice"
    print(f"seed {outcome.seed}: {outcome.failure}")
