"""Link ids and tags: what they must be for filters of different nodes to agree."""

from __future__ import annotations

from collections import Counter

import pytest

from psirp_sim.zfilters import SIZES, Scheme, link_id, link_tags, local_id

SEED = b"seed"


def bits_of(tag):
    return [bit for bit in range(tag.bit_length()) if tag >> bit & 1]


def test_ids_and_tags_are_those_of_every_other_node():
    one = link_id(SEED, "a", "to-b")
    assert one.hex() == "ac2ebfaee2333bc26462320ee3f5731d23a7dd588884357681373f4549d80bc4"
    assert (
        local_id(SEED, "a").hex()
        == "46882fb5de4f368174f05cda3229f1850b505e29e6bfca2e69023d2b057bf98a"
    )
    assert link_tags(one, 256, 5, 8)[0] == 0x1000A000000000000000020080000000000000000000000000
    assert bits_of(link_tags(one, 2048, 5, 8)[7]) == [399, 486, 747, 944, 1954]


def test_an_id_depends_on_everything_that_names_the_link():
    ids = {
        link_id(SEED, "a", "b"),
        link_id(SEED, "b", "a"),
        link_id(b"other", "a", "b"),
        link_id(SEED, "ab", ""),
        link_id(SEED, "", "ab"),
        local_id(SEED, "a"),
        local_id(SEED, "ab"),
    }
    assert len(ids) == 7


@pytest.mark.parametrize("m", [248, *SIZES])
def test_a_tag_has_k_bits_within_the_filter_and_differs_in_each_table(m):
    for number in range(200):
        tags = link_tags(link_id(SEED, str(number), "x"), m, 5, 8)
        assert len(set(tags)) == 8
        assert all(tag.bit_count() == 5 for tag in tags)
        assert all(tag < 1 << m for tag in tags)


def test_bits_are_spread_evenly():
    m, links = 256, 2_000
    counts = Counter(
        bit
        for number in range(links)
        for tag in link_tags(link_id(SEED, str(number), "x"), m, 5, 8)
        for bit in bits_of(tag)
    )
    expected = links * 8 * 5 / m
    chi_squared = sum((counts[bit] - expected) ** 2 / expected for bit in range(m))
    # 255 degrees of freedom: 255 on average, and above 360 once in 100,000 times.
    assert chi_squared < 360


@pytest.mark.parametrize("bad", [{"d": 0}, {"d": 9}, {"k": 0}, {"k": 33, "m": 2048}, {"m": 16}])
def test_a_scheme_that_cannot_work_is_refused(bad):
    with pytest.raises(ValueError, match=r"d lies between|does not fit"):
        Scheme(**bad)
