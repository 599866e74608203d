"""Retries: delays grow, are spread, and honour Retry-After within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.retries import RetrySchedule, retry_after

SCHEDULE = RetrySchedule(first=2, factor=2, longest=100, attempts=5)


def test_delays_grow_to_the_longest():
    assert [SCHEDULE.delay(n, 1.0) for n in range(1, 9)] == [2, 4, 8, 16, 32, 64, 100, 100]


@given(st.integers(1, 10**9), st.floats(0, 1), st.none() | st.floats(0, 1e9))
def test_a_delay_is_never_nothing_nor_too_long(failures, random, asked):
    delay = SCHEDULE.delay(failures, random, asked)
    assert 1 <= delay <= 100
    if asked is not None and asked <= 100:
        assert delay >= asked


def test_jitter_spreads_over_half_the_delay():
    assert SCHEDULE.delay(3, 0.0) == 4
    assert SCHEDULE.delay(3, 0.5) == 6


def test_the_limit_of_attempts():
    assert [SCHEDULE.exhausted(n) for n in (4, 5, 6)] == [False, True, True]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120),
        (" 7 ", 7),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("1e3", None),
        ("9" * 40, None),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("Thu, 01 Jan 1970 00:20:00 GMT", 200),
        ("Thu, 99 Jan 1970 00:20:00 GMT", None),
    ],
)
def test_what_retry_after_says(header, seconds):
    now = 1000 if seconds == 200 else 10**9
    assert retry_after(header, now) == seconds


@given(st.text())
def test_any_header_is_read(header):
    found = retry_after(header, 0.0)
    assert found is None or found >= 0
