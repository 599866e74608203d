"""Answers a network gets over UDP."""

from __future__ import annotations

from ipaddress import ip_network

from bootstrap.server.rates import MOST_NETWORKS, AnswerRate, Verdict
from bootstrap.server.settings import Limits

ANSWER, TRUNCATE, DROP = Verdict.ANSWER, Verdict.TRUNCATE, Verdict.DROP


def test_beyond_the_rate_half_is_dropped_and_half_sent_to_tcp():
    rate = AnswerRate(3, ())
    verdicts = [rate.ask(f"192.0.2.{n}", 0.0) for n in range(7)]
    assert verdicts == [ANSWER] * 3 + [DROP, TRUNCATE, DROP, TRUNCATE]
    assert rate.ask("192.0.3.1", 0.0) is ANSWER  # another network
    assert [rate.ask("192.0.2.9", 0.67) for _ in range(3)] == [ANSWER, ANSWER, DROP]
    assert [rate.ask("192.0.2.9", 99.0) for _ in range(4)] == [ANSWER] * 3 + [TRUNCATE]


def test_networks_of_ipv6_are_wider():
    rate = AnswerRate(1, ())
    assert rate.ask("2001:db8::1", 0.0) is ANSWER
    assert rate.ask("2001:db8::ff:0:0:1", 0.0) is DROP
    assert rate.ask("2001:db8:1::1", 0.0) is ANSWER
    assert rate.ask("fe80::1%eth0", 0.0) is ANSWER
    assert rate.ask("::ffff:192.0.2.1", 0.0) is ANSWER
    assert rate.ask("192.0.2.2", 0.0) is DROP


def test_some_are_not_limited():
    rate = AnswerRate(1, Limits().unlimited)
    assert {rate.ask("127.0.0.1", 0.0) for _ in range(9)} == {ANSWER}
    assert {rate.ask("::1", 0.0) for _ in range(9)} == {ANSWER}
    own = AnswerRate(1, (ip_network("10.0.0.0/8"),))
    assert {own.ask("10.1.2.3", 0.0) for _ in range(9)} == {ANSWER}


def test_a_clock_that_goes_back_gives_nothing():
    rate = AnswerRate(1, ())
    assert rate.ask("192.0.2.1", 10.0) is ANSWER
    assert rate.ask("192.0.2.1", 5.0) is DROP


def test_memory_is_bounded():
    rate = AnswerRate(1, ())
    for n in range(MOST_NETWORKS + 500):
        rate.ask(f"10.{n >> 8}.{n & 255}.1", 0.0)
    assert len(rate._buckets) == MOST_NETWORKS
