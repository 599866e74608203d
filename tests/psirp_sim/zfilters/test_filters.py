"""Filters: their place in the header, and how full they get."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psirp_sim.zfilters import (
    MOST_EXACT_BITS,
    SIZES,
    Mode,
    ZFilter,
    combine,
    descriptor_length,
    false_positive_rate,
    fill,
)


@given(st.sampled_from(SIZES), st.integers(0, 7), st.data())
def test_a_bloom_filter_is_read_as_it_was_made(size, table, data):
    bits = data.draw(st.integers(0, (1 << size) - 1))
    made = ZFilter.bloom(size, table, bits)
    assert made.mode is Mode.BLOOM
    assert (made.length * 8, made.table, made.numbering) == (size, table, 0)
    assert descriptor_length(made.descriptor) == len(made.to_bytes()) == size // 8
    assert ZFilter(made.descriptor, int.from_bytes(made.to_bytes(), "little")) == made


@given(st.integers(1, (1 << 32) - 1), st.integers(0, (1 << MOST_EXACT_BITS) - 1))
def test_an_exact_filter_is_as_long_as_it_needs(numbering, bits):
    made = ZFilter.exact(numbering, bits)
    assert made.mode is Mode.EXACT
    assert made.length % 8 == 0
    assert made.length >= 8
    assert made.length == 8 or bits >> (made.length - 8) * 8
    read = ZFilter(made.descriptor, int.from_bytes(made.to_bytes(), "little"), numbering)
    assert read == made


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at most 4032 bits"):
        ZFilter.exact(1, 1 << MOST_EXACT_BITS)
    with pytest.raises(ValueError, match="no table 8"):
        ZFilter.bloom(256, 8, 0)
    with pytest.raises(ValueError, match="not in tuple"):
        ZFilter.bloom(248, 0, 0)


def test_descriptors_that_mean_nothing_announce_nothing():
    lengths = {descriptor: descriptor_length(descriptor) for descriptor in range(256)}
    assert [lengths[code << 3] for code in range(4)] == [32, 64, 128, 256]
    assert all(lengths[descriptor] == 0 for descriptor in range(32, 65))
    assert [lengths[64 + units] for units in (1, 63)] == [8, 504]
    assert all(lengths[descriptor] == 0 for descriptor in range(128, 256))


def test_a_filter_contains_its_tags():
    assert combine([]) == 0
    assert combine([0b0011, 0b0110]) == 0b0111


def test_the_computed_fill_is_that_of_random_tags():
    random = Random(1)
    filled = [
        combine(sum(1 << bit for bit in random.sample(range(256), 5)) for _ in range(34))
        for _ in range(500)
    ]
    assert fill(256, 5, 34) == pytest.approx(
        sum(bits.bit_count() for bits in filled) / 256 / 500, abs=0.01
    )
    assert false_positive_rate(248, 5, 35) == pytest.approx(0.0335, abs=0.0005)
    assert false_positive_rate(248, 5, 0) == 0
