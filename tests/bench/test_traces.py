"""The benchmark of traces runs, and reports what its reader expects."""

from bench import traces


def test_runs_small() -> None:
    result = traces.run(updates=500, seconds=0.4, rates=(1_000, 2_000), rounds=1)
    assert set(result) == {"ratios", "figures", "notes"}
    ratios, figures = result["ratios"], result["figures"]
    assert isinstance(ratios, dict)
    assert isinstance(figures, dict)
    assert set(ratios) == {"caller_vs_json_log", "cpu_vs_json_log"}
    assert all(value > 0 for name, value in figures.items() if name != "events_per_s_sustained")
    assert figures["events_per_s_sustained"] in (0, 1_000, 2_000)  # 0 on a machine at its limit
    assert figures["bytes_per_event"] < 500
