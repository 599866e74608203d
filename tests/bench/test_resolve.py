"""The benchmark `resolve`, small: the shape of its result, and that it measures what it says."""

from bench.resolve import AT_ONCE, run


def test_shape():
    result = run(hosts=20, cached=500, rounds=1)
    assert set(result) == {"ratios", "figures", "notes"}
    kinds = ("cached", "uncached", f"uncached_{AT_ONCE}")
    assert set(result["ratios"]) == {
        *(f"{kind}_vs_dnspython" for kind in kinds),
        "uncached_vs_dnspython_edns",
    }
    figures = result["figures"]
    assert set(figures) == {
        "us_per_cached_lookup",
        "lookups_per_s_dnspython_edns_uncached",
        *(f"lookups_per_s_{kind}" for kind in kinds),
        *(f"lookups_per_s_dnspython_{kind}" for kind in kinds),
    }
    assert all(value > 0 for value in {**result["ratios"], **figures}.values())
    assert figures["lookups_per_s_cached"] > figures["lookups_per_s_uncached"]
    assert all(isinstance(note, str) for note in result["notes"])
