"""The order of endpoints: priorities, weights by statistics, failures."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.selection import MAX_FAILURES, Endpoint, Failures, in_order, in_order_for

ROUNDS = 10_000


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def firsts(endpoints, place=0, seed=1):
    below = random.Random(seed).randrange
    return Counter(in_order(endpoints, below)[place].host for _ in range(ROUNDS))


def within(count, share):
    """Five standard deviations of a binomial distribution; the seed is fixed anyway."""
    return abs(count - ROUNDS * share) < 5 * (ROUNDS * share * (1 - share)) ** 0.5


def test_lower_priorities_come_first_whatever_the_weights():
    endpoints = [
        Endpoint("c", 1, 20, 65_535),
        Endpoint("a", 1, 0, 0),
        Endpoint("b", 1, 10, 1),
        Endpoint("b", 2, 10, 0),
    ]
    for seed in range(50):
        order = in_order(endpoints, random.Random(seed).randrange)
        assert [each.priority for each in order] == [0, 10, 10, 20]


def test_the_first_is_chosen_in_proportion_to_the_weights():
    for unit in (1, 10, 1_000):
        counted = firsts(
            [Endpoint(host, 1, 0, n * unit) for host, n in zip("bac", (3, 1, 6), strict=True)]
        )
        assert within(counted["a"], 0.1)
        assert within(counted["b"], 0.3)
        assert within(counted["c"], 0.6)


def test_the_second_is_chosen_by_weight_among_the_rest():
    endpoints = [Endpoint("a", 1, 0, 10), Endpoint("b", 1, 0, 30), Endpoint("c", 1, 0, 60)]
    counted = firsts(endpoints, place=1)
    # a first, then b of b and c; or c first, then b of a and b.
    assert within(counted["b"], 0.1 * 30 / 90 + 0.6 * 30 / 40)


def test_weight_0_has_a_small_chance_beside_others():
    counted = firsts([Endpoint("big", 1, 0, 99), Endpoint("idle", 1, 0, 0)])
    assert within(counted["idle"], 1 / 100)
    counted = firsts([Endpoint("a", 1, 0, 1), Endpoint("b", 1, 0, 2), Endpoint("idle", 1, 0, 0)])
    assert within(counted["idle"], 1 / 4)
    assert within(counted["a"], 1 / 4)
    assert within(counted["b"], 2 / 4)


def test_where_all_have_weight_0_they_share_the_load():
    for place in (0, 1, 2):
        counted = firsts([Endpoint(host, 1) for host in "abc"], place)
        assert all(within(counted[host], 1 / 3) for host in "abc")


@given(
    st.lists(st.builds(Endpoint, st.sampled_from("abcd"), *[st.integers(0, 65_535)] * 3)),
    st.integers(0, 100),
)
def test_every_endpoint_is_there_once_whatever_the_order_given(endpoints, seed):
    order = in_order(endpoints, random.Random(seed).randrange)
    assert Counter(order) == Counter(endpoints)
    assert [each.priority for each in order] == sorted(each.priority for each in endpoints)


@pytest.fixture
def clock():
    return Clock()


A, B, C = (Endpoint(host, 80) for host in "abc")


def test_what_failed_comes_last_for_a_while(clock):
    failures = Failures(clock, first=30)
    failures.failed(A)
    assert failures.last([A, B, C]) == [B, C, A]
    clock.now += 5
    failures.failed(B)
    assert failures.last([A, B, C]) == [C, A, B]
    clock.now += 25
    assert failures.last([A, B, C]) == [A, C, B]
    clock.now += 5
    assert failures.last([A, B, C]) == [A, B, C]


def test_a_failed_endpoint_comes_after_those_of_worse_priority(clock):
    failures = Failures(clock)
    backup = Endpoint("backup", 80, priority=50)
    failures.failed(A)
    assert failures.last(in_order([A, backup], random.Random(1).randrange)) == [backup, A]


def test_addresses_and_weights_do_not_make_another_endpoint(clock):
    failures = Failures(clock)
    failures.failed(Endpoint("a", 80, 1, 2, ("127.0.0.1",)))
    assert failures.last([A, Endpoint("a", 81)]) == [Endpoint("a", 81), A]


def test_each_further_failure_counts_twice_as_long(clock):
    failures = Failures(clock, first=30, longest=100)
    for pause in (30, 60, 100, 100):
        failures.failed(A)
        clock.now += pause - 1
        assert failures.last([A, B]) == [B, A]
        failures.failed(A)  # told again before it is forgiven: the same failure
        clock.now += 1
        assert failures.last([A, B]) == [A, B]


def test_what_worked_is_forgiven_at_once(clock):
    failures = Failures(clock, first=30)
    failures.failed(A)
    clock.now += 30
    failures.failed(A)
    failures.worked(A)
    assert failures.last([A, B]) == [A, B]
    failures.failed(A)
    clock.now += 30
    assert failures.last([A, B]) == [A, B]


def test_the_oldest_of_too_many_failures_is_forgotten(clock):
    failures = Failures(clock)
    failures.failed(A)
    for number in range(MAX_FAILURES):
        failures.failed(Endpoint(f"host{number}", 80))
    assert failures.last([A, Endpoint("host0", 80)]) == [A, Endpoint("host0", 80)]
    assert failures.last([Endpoint("host0", 80), A]) == [A, Endpoint("host0", 80)]


TOPICS = [f"http://news.site-b.test/feed/{n}" for n in range(ROUNDS)]


def test_topics_are_spread_by_weight_and_the_same_for_all():
    endpoints = [Endpoint("a", 1, 0, 1), Endpoint("b", 1, 0, 3)]
    counted = Counter(in_order_for(endpoints, topic)[0].host for topic in TOPICS)
    assert within(counted["b"], 0.75)
    for topic in TOPICS[:100]:
        assert in_order_for(endpoints, topic) == in_order_for(endpoints[::-1], topic)


def test_of_one_that_is_taken_away_only_the_topics_move_and_by_weight():
    endpoints = [Endpoint("a", 1, 0, 10), Endpoint("b", 1, 0, 30), Endpoint("c", 1, 0, 60)]
    moved = Counter()
    for topic in TOPICS:
        before = in_order_for(endpoints, topic)
        rest = [each for each in endpoints if each.host != "c"]
        assert in_order_for(rest, topic) == [each for each in before if each.host != "c"]
        if before[0].host == "c":
            moved[before[1].host] += 1
    total = moved.total()
    assert within(total, 0.6)
    assert abs(moved["b"] - total * 0.75) < 5 * (total * 0.75 * 0.25) ** 0.5


def test_a_key_changes_neither_priorities_nor_the_last_place_of_weight_0():
    endpoints = [Endpoint("a", 1, 0, 0), Endpoint("b", 1, 0, 0), Endpoint("c", 1, 0, 1),
                 Endpoint("d", 1, 1, 65_535)]  # fmt: skip
    orders = Counter("".join(e.host for e in in_order_for(endpoints, topic)) for topic in TOPICS)
    assert set(orders) == {"cabd", "cbad"}
    assert within(orders["cabd"], 0.5)


def test_the_order_for_a_key_is_everybodys():
    """Programs on other machines, and of later days, have to agree."""
    endpoints = [Endpoint(f"psph{n}.site-a.test", 8080, 0, n) for n in range(1, 6)]
    found = "".join(each.host[4] for topic in TOPICS[:4] for each in in_order_for(endpoints, topic))
    assert found == "42531253144531215324"


@given(
    st.lists(st.builds(Endpoint, st.text(max_size=3), st.integers(1, 9), st.integers(0, 3),
                       st.integers(0, 65_535)), unique=True),
    st.text(),
)  # fmt: skip
def test_everybody_is_in_the_order_for_a_key(endpoints, key):
    order = in_order_for(endpoints, key)
    assert sorted(order, key=repr) == sorted(endpoints, key=repr)
    assert [each.priority for each in order] == sorted(each.priority for each in endpoints)
