"""Homes of scopes: all nodes agree, servers share the load, and little moves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.rendezvous.homes import homes

RANDOM = Random(5)
SCOPES = [RANDOM.randbytes(32) for _ in range(1_000)]
SERVERS = ["rv1", "rv2", "rv3", "rv4"]


def test_every_node_and_every_release_gives_the_same_answer():
    assert [homes(bytes([n]) * 32, ["a", "b", "c", "ü"]) for n in range(4)] == [
        ["ü", "b"],
        ["a", "b"],
        ["a", "c"],
        ["ü", "b"],
    ]
    assert homes(bytes(32), [f"rv{n}" for n in range(8)], 3) == ["rv6", "rv2", "rv7"]


def test_servers_share_the_scopes():
    best = Counter(homes(sid, SERVERS)[0] for sid in SCOPES)
    either = Counter(server for sid in SCOPES for server in homes(sid, SERVERS))
    # Four standard deviations of a binomial distribution: 250 +- 55, 500 +- 64.
    assert all(195 < best[server] < 305 for server in SERVERS)
    assert all(436 < either[server] < 564 for server in SERVERS)
    pairs = Counter(frozenset(homes(sid, SERVERS)) for sid in SCOPES)
    assert len(pairs) == 6  # whoever dies, his scopes spread over all the others


@pytest.mark.parametrize("gone", SERVERS)
def test_a_server_that_goes_or_comes_moves_only_its_own_scopes(gone):
    rest = [server for server in SERVERS if server != gone]
    moved = 0
    for sid in SCOPES:
        before, after = homes(sid, SERVERS), homes(sid, rest)
        if gone in before:
            moved += 1
            assert [server for server in before if server != gone] == [
                server for server in after if server in before
            ]
        else:
            assert before == after
    assert 436 < moved < 564  # half of them: it was one of two homes of four


@given(
    st.binary(min_size=32, max_size=32),
    st.lists(st.text(min_size=1, max_size=8), max_size=8),
    st.integers(0, 4),
    st.randoms(),
)
def test_order_and_repetition_do_not_matter(sid, servers, count, random):
    expected = homes(sid, sorted(set(servers)), count)
    random.shuffle(servers)
    assert homes(sid, servers, count) == expected
    assert len(expected) == min(count, len(set(servers)))
    assert homes(sid, servers, count + 1)[:count] == expected


def test_fewer_servers_than_homes():
    assert homes(SCOPES[0], []) == []
    assert homes(SCOPES[0], ["only"]) == ["only"]
    assert sorted(homes(SCOPES[0], ["a", "b"], 5)) == ["a", "b"]


def test_the_answer_belongs_to_the_caller():
    homes(SCOPES[0], SERVERS).clear()
    assert len(homes(SCOPES[0], SERVERS)) == 2
