from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.runtime.durations import InvalidDuration, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("5 ms", 5_000_000),
        ("1.5s", 1_500_000_000),
        (" 2 min ", 120_000_000_000),
        ("0 s", 0),
        ("20.7 ms", 20_700_000),
        ("7 ns", 7),
        ("1 d", 86_400_000_000_000),
    ],
)
def test_parse(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "-1 s", "1 parsec", "1e3 s", "٣ s", "9" * 400 + "s"]
)
def test_refused(text):
    with pytest.raises(InvalidDuration, match="write a number and a unit"):
        parse_duration(text)


@given(st.integers(0, 10**15))
def test_what_is_shown_can_be_read_again(nanoseconds):
    assert parse_duration(format_duration(nanoseconds)) == pytest.approx(nanoseconds, rel=1e-5)


@given(st.text(max_size=50))
def test_any_text_parses_or_is_refused(text):
    with suppress(InvalidDuration):
        assert parse_duration(text) >= 0
