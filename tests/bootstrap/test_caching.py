"""How long an answer is fresh, stale, remembered as a failure, and which makes room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.caching import Cache, CacheBounds

BOUNDS = CacheBounds(
    shortest=2, longest=100, longest_negative=50, stale_for=1_000, retry_after=5, entries=3
)


class Clock:
    now = 500.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cache(clock):
    return Cache(clock, BOUNDS)


@pytest.mark.parametrize(
    ("ttl", "positive", "negative"),
    [(0, 2, 2), (2, 2, 2), (30, 30, 30), (70, 70, 50), (1e9, 100, 50)],
)
def test_times_to_live_are_bounded_both_ways(ttl, positive, negative):
    assert BOUNDS.lifetime(ttl, negative=False) == positive
    assert BOUNDS.lifetime(ttl, negative=True) == negative


@pytest.mark.parametrize(
    "wrong",
    [
        {"shortest": 0},
        {"shortest": 20, "longest": 10},
        {"shortest": 20, "longest_negative": 10},
        {"stale_for": -1},
        {"retry_after": -1},
        {"entries": 0},
    ],
)
def test_bounds_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"above 0|negative"):
        CacheBounds(**wrong)


def test_fresh_then_stale_then_gone(cache, clock):
    cache.put("a", "value", 10)
    assert cache.get("a") == ("value", 10)
    clock.now += 9
    assert cache.get("a") == ("value", 1)
    assert not cache.get("a").stale
    clock.now += 1
    assert cache.get("a") == ("value", 0)
    assert cache.get("a").stale
    clock.now += 999
    assert cache.get("a").stale
    clock.now += 1
    assert cache.get("a") is None
    clock.now -= 100  # gone is gone
    assert cache.get("a") is None


def test_without_stale_time_it_ends_with_its_time_to_live(clock):
    cache = Cache(clock, CacheBounds(stale_for=0))
    cache.put("a", "value", 10)
    clock.now += 9.9
    assert cache.get("a").value == "value"
    clock.now += 0.1
    assert cache.get("a") is None


def test_a_failure_is_remembered_for_a_while_and_leaves_the_value(cache, clock):
    assert cache.failure("a") is None
    cache.fail("a", "nobody home")
    assert cache.get("a") is None
    cache.put("a", "value", 10)
    assert cache.failure("a") is None
    clock.now += 20
    cache.fail("a", "nobody home")
    assert cache.get("a") == ("value", 0)
    assert cache.failure("a") == "nobody home"
    clock.now += 4.9
    assert cache.failure("a") == "nobody home"
    clock.now += 0.1
    assert cache.failure("a") is None


def test_failures_do_not_lengthen_a_stale_value(cache, clock):
    cache.put("a", "value", 10)
    for _ in range(10):
        clock.now += 100
        cache.fail("a", "nobody home")
    assert cache.get("a") == ("value", 0)
    clock.now += 10
    assert cache.get("a") is None
    assert cache.failure("a") is None


def test_the_least_lately_used_makes_room(cache):
    for key in "abc":
        cache.put(key, key, 10)
    cache.get("a")
    cache.put("d", "d", 10)
    assert cache.get("b") is None
    assert [cache.get(key).value for key in "acd"] == ["a", "c", "d"]


@given(st.lists(st.tuples(st.sampled_from(["put", "fail", "get"]), st.integers(0, 9))))
def test_it_never_grows_beyond_its_bound(steps):
    cache = Cache(Clock(), BOUNDS)
    for step, key in steps:
        if step == "put":
            cache.put(key, key, 10)
            assert cache.get(key) == (key, 10)
        elif step == "fail":
            cache.fail(key, "why")
            assert cache.failure(key) == "why"
        else:
            cache.get(key)
        assert len(cache) <= 3
