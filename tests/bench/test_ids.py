"""The benchmark `ids`, small: the shape of its result, and that it measures what it says."""

from bench.ids import run


def test_shape() -> None:
    result = run(sizes=(10, 1_000), lookups=200)
    assert set(result) == {"ratios", "figures", "notes"}
    ratios, figures, notes = result["ratios"], result["figures"], result["notes"]
    assert isinstance(ratios, dict)
    assert isinstance(figures, dict)
    assert isinstance(notes, list)
    assert set(ratios) == {"flat_10_to_1k", "new_to_bare_blake3", "cached_to_bare_blake3"}
    assert set(figures) == {
        "ids_per_s_new",
        "ids_per_s_cached",
        "bare_blake3_per_s",
        "lookups_per_s_10",
        "lookups_per_s_1k",
        "adds_per_s",
        "bytes_per_topic",
    }
    assert all(value > 0 for value in {**ratios, **figures}.values())
    assert ratios["flat_10_to_1k"] <= 1
    assert figures["ids_per_s_cached"] > figures["ids_per_s_new"]
    assert 50 < figures["bytes_per_topic"] < 500
    assert all(isinstance(note, str) for note in notes)
