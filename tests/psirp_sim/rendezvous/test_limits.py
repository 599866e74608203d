"""Token buckets: never more than the rate and the burst allow, and never less."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.rendezvous.limits import TokenBucket
from psirp_sim.runtime.durations import MILLISECOND, SECOND

RATES = st.integers(1, 10_000)
BURSTS = st.integers(1, 1_000)
STEPS = st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 1_200)), max_size=60)


@given(RATES, BURSTS, st.integers(-SECOND, 10**18), STEPS)
def test_it_gives_what_exact_arithmetic_gives(rate, burst, now, steps):
    bucket, level = TokenBucket(rate, burst), Fraction(burst)
    for pause, tokens in steps:
        now += pause
        level = min(Fraction(burst), level + Fraction(pause * rate, SECOND))
        assert bucket.take(now, tokens) == (tokens <= level)
        level -= tokens if tokens <= level else 0


@given(RATES, BURSTS, STEPS)
def test_no_more_than_rate_and_burst_in_any_stretch_of_time(rate, burst, steps):
    bucket, now, taken = TokenBucket(rate, burst), 0, []
    for pause, tokens in steps:
        now += pause
        taken.append((now, tokens if bucket.take(now, tokens) else 0))
    for first, (begin, _) in enumerate(taken):
        total = 0
        for end, tokens in taken[first:]:
            total += tokens
            assert total * SECOND <= burst * SECOND + (end - begin) * rate


def test_asking_often_loses_nothing():
    bucket = TokenBucket(rate=7, burst=2)
    assert bucket.take(0, 2)
    # A seventh of a second is no whole number of nanoseconds, and yet the seventh comes on time.
    assert sum(bucket.take(now) for now in range(10_000, SECOND, 10_000)) == 6
    assert bucket.take(SECOND)


def test_a_clock_that_steps_back_gives_nothing_twice():
    bucket = TokenBucket(rate=1_000, burst=2)
    assert bucket.take(SECOND, 2)
    assert not bucket.take(0)
    assert not bucket.take(SECOND)
    assert bucket.take(SECOND + MILLISECOND)
    assert not bucket.take(SECOND + MILLISECOND)


def test_more_than_the_burst_never_fits():
    bucket = TokenBucket(rate=5, burst=3)
    assert not bucket.take(0, 4)
    assert not bucket.take(10**18, 4)
    assert bucket.take(10**18, 3)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (1, 0), (-1, 5)])
def test_nonsense_is_refused(rate, burst):
    with pytest.raises(ValueError, match="at least 1"):
        TokenBucket(rate, burst)
    with pytest.raises(ValueError, match="taken"):
        TokenBucket(1, 1).take(0, -1)
