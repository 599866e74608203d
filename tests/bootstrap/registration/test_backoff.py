"""Longer each time, up to a limit, and spread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.registration.backoff import Backoff


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_within_its_bounds(failures, random):
    backoff = Backoff(0.5, 3, 60)
    assert 0.25 <= backoff.delay(failures, random) <= 60


@given(st.integers(1, 100), st.floats(0, 1))
def test_never_shorter_after_more_failures(failures, random):
    backoff = Backoff()
    assert backoff.delay(failures, random) <= backoff.delay(failures + 1, random)


def test_the_first_delays():
    assert [Backoff(1, 2, 5).delay(each, 1.0) for each in (1, 2, 3, 4)] == [1, 2, 4, 5]
    assert Backoff(1, 2, 5).delay(2, 0.0) == 1


@pytest.mark.parametrize("wrong", [(0, 2, 5), (6, 2, 5), (1, 0.5, 5)])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="a backoff needs"):
        Backoff(*wrong)
