"""Leases are finite and bounded both ways."""

import pytest

from push_hub.leases import DAY, LeaseBounds


@pytest.mark.parametrize(
    ("asked", "granted"),
    [(None, 10 * DAY), (1, 300), (300, 300), (4_000, 4_000), (10**17, 30 * DAY)],
)
def test_what_is_granted(asked, granted):
    assert LeaseBounds().grant(asked) == granted


def test_bounds_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="shortest <= default"):
        LeaseBounds(default=10, shortest=20)
