"""Limits: rates are kept, hosts that fail get fewer slots."""

from hypothesis import given
from hypothesis import strategies as st

from push_hub.limits import HostSlots, Probes, RateLimit
from push_hub.settings import Rate


def test_a_burst_and_then_the_rate():
    limit = RateLimit(Rate(per_second=2, burst=3))
    assert [limit.take("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.take("b", 0.0) == 0
    assert limit.take("a", 0.5) == 0
    assert limit.take("a", 0.5) > 0


@given(st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_no_more_than_the_rate_passes(gaps):
    limit = RateLimit(Rate(per_second=1, burst=5))
    now = 0.0
    passed = 0
    for gap in gaps:
        now += gap
        passed += limit.take("a", now) == 0
        assert passed <= 5 + now + 1e-6


def test_what_is_reserved_comes_at_the_rate_and_not_too_late():
    limit = RateLimit(Rate(per_second=2, burst=1))
    assert [limit.reserve("a", 0.0, 1.0) for _ in range(4)] == [0, 0.5, 1.0, None]
    assert limit.reserve("a", 0.5, 1.0) == 1.0


def test_memory_is_bounded():
    limit = RateLimit(Rate(1, 1), max_keys=10)
    for n in range(100):
        limit.take(str(n), 0.0)
    assert len(limit._buckets) == 10


def test_a_host_earns_slots_by_answering_and_loses_them_by_failing():
    slots = HostSlots(16)
    assert slots.free("a") == 4
    slots.take("a")
    for _ in range(20):
        slots.take("a")
        slots.give_back("a", answered=True)
    assert slots.free("a") == 15
    for _ in range(10):
        slots.take("a")
        slots.give_back("a", answered=False)
    slots.give_back("a", answered=False)
    assert slots.free("a") == HostSlots.SMALLEST


def test_slow_answers_earn_nothing_and_very_slow_ones_cost():
    slots = HostSlots(16)
    for seconds, limit in ((0.5, 5), (1.5, 5), (3.0, 2)):
        slots.take("a")
        slots.take("a")
        slots.give_back("a", answered=True, seconds=seconds)
        assert slots.limit("a") == limit, seconds


def test_work_is_claimed_ahead_where_answers_come_soon():
    slots = HostSlots(16)
    assert slots.ahead("unknown") == 4
    for host, seconds in (("quick", 0.001), ("usual", 0.2), ("slow", 2.0), ("dead", 10.0)):
        slots.take(host)
        slots.take(host)
        slots.give_back(host, answered=host != "dead", seconds=seconds)
    assert [slots.ahead(host) for host in ("quick", "usual", "slow", "dead")] == [20, 5, 0, 0]


def test_only_busy_and_failing_hosts_are_remembered():
    slots = HostSlots(16)
    slots.take("good")
    slots.give_back("good", answered=True)
    slots.take("bad")
    slots.give_back("bad", answered=False)
    assert slots.shares() == {"bad": 2}


def test_full_hosts_are_named():
    slots = HostSlots(4)
    slots.take("a")
    assert slots.shares() == {"a": 0}
    assert slots.initial == 1
    assert slots.free("a") == 0
    assert slots.free("b") == 1


def test_a_host_is_probed_when_its_last_failure_is_long_enough_ago():
    probes = Probes(60)
    probes.failed("a", 100.0)
    probes.want("a")
    probes.want("b")
    assert probes.take(101.0) == {"b": 1}
    assert probes.next == 160.0
    assert probes.take(159.0) == {}
    assert probes.take(160.0) == {"a": 1}
    probes.want("a")
    assert probes.next == 220.0, "a probe is one, whether it was answered yet or not"


def test_a_host_that_recovers_is_probed_at_once_and_twice():
    probes = Probes(60)
    probes.failed("a", 100.0)
    probes.recovered("a")
    probes.recovered("a")
    assert probes.take(100.0) == {"a": 4}
    assert probes.next is None


def test_what_a_host_asked_for_is_waited_for():
    probes = Probes(60)
    probes.failed("a", 100.0, 500.0)
    probes.recovered("a")
    assert probes.next == 600.0
    probes.failed("a", 110.0, 10.0)
    assert probes.next == 600.0


def test_hosts_to_probe_are_bounded():
    probes = Probes(60, max_hosts=2)
    for host in "abc":
        probes.failed(host, 1.0, 5.0)
        probes.want(host)
        probes.recovered(host)
    assert len(probes.take(1_000.0)) == 2
