"""One packet, one table: every check in its order, and what a table is compiled from."""

from __future__ import annotations

import pytest

from psirp_sim.forwarding.table import (
    DROPS,
    HERE,
    Count,
    ForwardingCounters,
    ForwardingTable,
    LoopCache,
    Row,
    compile_table,
    sent_on,
)
from psirp_sim.wire.data import HEADER, DataPacket
from psirp_sim.zfilters import SIZES, Scheme, ZFilter, link_id, link_tags, local_id

SEED = b"seed"
SCHEME = Scheme()
LINKS = ["east", "west", "north"]
TABLE = compile_table(
    "n", LINKS, SEED, SCHEME, {7: {("n", "east"): 0, ("n", "north"): 4_000, "n": 70}}
)


def tag(link, size=256, table=0):
    return link_tags(link_id(SEED, "n", link), size, SCHEME.k, SCHEME.d)[table]


def local_tag(size=256, table=0):
    return link_tags(local_id(SEED, "n"), size, SCHEME.k, SCHEME.d)[table]


def bloom(*tags, size=256, table=0, **fields):
    bits = 0
    for each in tags:
        bits |= each
    return packet(ZFilter.bloom(size, table, bits), **fields)


def exact(*bits, numbering=7, **fields):
    return packet(ZFilter.exact(numbering, sum(1 << bit for bit in bits)), **fields)


def packet(zfilter, packet_id=b"packet 1", hop_limit=32, payload=b"payload"):
    return DataPacket(zfilter, packet_id, payload, hop_limit).encode()


def decide(data, arrived=HERE, table=TABLE, cache=None):
    return table.decide(data, arrived, LoopCache() if cache is None else cache)


def changed(data, **positions):
    """The packet with other bytes, by the names of the header's fields."""
    places = {"version": 0, "hop_limit": 2, "descriptor": 3}
    result = bytearray(data)
    for field, value in positions.items():
        result[places[field]] = value
    return bytes(result)


# The checks, in their order


def test_each_check_comes_before_all_that_follow_it():
    """A packet with everything wrong is mended step by step, and the next check complains."""
    full = bloom((1 << 129) - 1, hop_limit=0)
    cache = LoopCache()
    cache.seen(b"packet 1")

    wrong = changed(full, version=2, descriptor=0xFF)
    assert decide(wrong[: HEADER - 1], cache=cache) is Count.SHORT
    assert decide(wrong[:HEADER], cache=cache) is Count.VERSION
    wrong = changed(wrong, version=1)
    assert decide(wrong[:HEADER], cache=cache) is Count.HOP_LIMIT
    wrong = changed(wrong, hop_limit=1)
    assert decide(wrong[:HEADER], cache=cache) is Count.SIZE
    wrong = changed(wrong, descriptor=0)
    assert decide(wrong[: HEADER + 31], cache=cache) is Count.SIZE
    assert decide(wrong[: HEADER + 32], cache=cache) is Count.FULL
    assert decide(exact(9, numbering=8), cache=cache) is Count.NUMBERING
    assert decide(exact(9), cache=cache) is Count.LOOP
    assert decide(bloom(), cache=cache) is Count.LOOP
    assert decide(bloom(packet_id=b"packet 2"), cache=cache) is Count.NOWHERE
    assert decide(exact(9, packet_id=b"packet 3"), cache=cache) is Count.NOWHERE


def test_drops_are_the_first_counters_in_the_order_of_the_checks():
    names = ["SHORT", "VERSION", "HOP_LIMIT", "SIZE", "NUMBERING", "FULL", "LOOP", "NOWHERE"]
    assert [drop.name for drop in DROPS] == names
    counters = ForwardingCounters()
    counters.values[Count.LOOP] += 2
    assert counters.as_dict()["loop"] == 2
    assert len(counters.as_dict()) == len(Count)


@pytest.mark.parametrize("length", range(HEADER))
def test_a_packet_without_a_whole_header_is_short(length):
    assert decide(bloom(tag("east"))[:length]) is Count.SHORT


@pytest.mark.parametrize("descriptor", [0b100_000, 0b111_111, 64, 128, 255])
def test_a_descriptor_without_a_meaning(descriptor):
    data = changed(bloom(tag("east"), payload=bytes(600)), descriptor=descriptor)
    assert decide(data) is Count.SIZE


def test_a_bloom_filter_of_a_table_the_fabric_does_not_use():
    few = compile_table("n", LINKS, SEED, Scheme(d=2))
    assert decide(bloom(tag("east", table=1), table=1), table=few) == ((0,), False)
    assert decide(bloom(tag("east", table=2), table=2), table=few) is Count.SIZE


def test_the_filter_ends_the_packet_or_something_follows():
    data = bloom(tag("west"), payload=b"")
    assert len(data) == HEADER + 32
    assert decide(data) == ((1,), False)
    assert decide(data[:-1]) is Count.SIZE


@pytest.mark.parametrize("size", SIZES)
def test_a_filter_may_be_exactly_half_full(size):
    east = tag("east", size)
    half = east
    bit = 0
    while half.bit_count() < size // 2:
        half |= 1 << bit
        bit += 1
    assert decide(bloom(half, size=size))[0][0] == 0
    more = next(1 << bit for bit in range(size) if not half >> bit & 1)
    assert decide(bloom(half, more, size=size)) is Count.FULL


def test_exact_filters_may_be_full():
    assert decide(exact(*range(64))) == ((0,), False)


def test_only_packets_that_were_looked_up_are_remembered():
    cache = LoopCache()
    assert decide(bloom(tag("east"), hop_limit=0), cache=cache) is Count.HOP_LIMIT
    assert decide(bloom((1 << 256) - 1), cache=cache) is Count.FULL
    assert decide(exact(0, numbering=1), cache=cache) is Count.NUMBERING
    assert decide(bloom(), cache=cache) is Count.NOWHERE
    assert decide(bloom(tag("east")), cache=cache) is Count.LOOP


# Where packets go


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("table", range(8))
def test_every_size_and_table(size, table):
    data = bloom(tag("east", size, table), tag("north", size, table), size=size, table=table)
    assert decide(data) == ((0, 2), False)
    data = bloom(local_tag(size, table), tag("west", size, table), size=size, table=table)
    assert decide(data) == ((1,), True)
    assert decide(bloom(local_tag(size, table), size=size, table=table)) == ((), True)


def test_never_back_over_the_link_it_came_by():
    data = bloom(tag("east"), tag("west"))
    assert decide(data, arrived=0) == ((1,), False)
    assert decide(data, arrived=1) == ((0,), False)
    assert decide(data, arrived=2) == ((0, 1), False)
    assert decide(bloom(tag("east")), arrived=0) is Count.NOWHERE


def test_a_part_of_a_tag_is_not_the_tag():
    east = tag("east")
    assert decide(bloom(east & (east - 1))) is Count.NOWHERE


def test_exact_filters():
    assert decide(exact(0, 70)) == ((0,), True)
    assert decide(exact(0, 4_000)) == ((0, 2), False)
    assert decide(exact(70)) == ((), True)
    # West has no number in this numbering; others' bits mean nothing here.
    assert decide(exact(1, 71, 3_999)) is Count.NOWHERE


def test_a_number_beyond_the_end_of_a_short_filter_is_not_set():
    assert decide(exact(0)) == ((0,), False)


def test_a_last_hop_is_a_hop():
    data = bloom(tag("east"), hop_limit=1)
    assert decide(data) == ((0,), False)
    assert decide(sent_on(data)) is Count.HOP_LIMIT


def test_a_copy_differs_in_its_hop_limit_only():
    data = bloom(tag("east"), hop_limit=9)
    assert sent_on(data) == changed(data, hop_limit=8)


# What is remembered


def test_the_loop_cache_forgets_a_generation_at_a_time():
    cache = LoopCache(room=3)
    first, second = ([bytes((number,)) for number in range(low, low + 3)] for low in (0, 3))
    assert not any(map(cache.seen, first))
    assert all(map(cache.seen, first))
    assert not any(map(cache.seen, second[:2]))
    assert all(map(cache.seen, first)), "the generation before is still known"
    assert not cache.seen(second[2])
    assert all(map(cache.seen, second))
    assert not any(map(cache.seen, first))


# Compiling


def test_a_table_without_links_delivers():
    alone = compile_table("n", [], SEED, SCHEME)
    assert decide(bloom(local_tag()), table=alone) == ((), True)
    assert decide(bloom(tag("east")), table=alone) is Count.NOWHERE
    assert decide(bloom(tag("east")), table=ForwardingTable()) is Count.SIZE


def test_rows_hold_the_tags_of_their_size_and_table():
    for code, size in enumerate(SIZES):
        for table in range(8):
            row = TABLE.bloom[code << 3 | table]
            assert row.tags == tuple((tag(link, size, table), LINKS.index(link)) for link in LINKS)
            assert row.local == local_tag(size, table)
    assert len(TABLE.bloom) == len(SIZES) * 8


def test_rows_of_a_numbering_hold_what_it_numbers():
    assert TABLE.exact == {7: Row(((1, 0), (1 << 4_000, 2)), 1 << 70)}
    elsewhere = compile_table("n", LINKS, SEED, SCHEME, {3: {("m", "n"): 0, "m": 1}})
    assert elsewhere.exact == {3: Row((), 0)}
    assert decide(exact(0, 1, numbering=3), table=elsewhere) is Count.NOWHERE


def test_the_index_of_a_link():
    assert [TABLE.index(link) for link in LINKS] == [0, 1, 2]
    assert TABLE.index("south") == HERE
