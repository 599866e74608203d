"""The benchmark of hand-overs runs, counts what arrives, and reports what it has to."""

from bench import handoff, mqtt


def test_the_form_of_the_result():
    result = handoff.run(rounds=((2, 50.0, 1),), gap=0.5)
    assert set(result) == {"ratios", "figures", "notes"}
    figures = result["figures"]
    sides = ["proactive", "reactive"]
    if mqtt.program() is None:
        assert result["ratios"] == {}
        assert mqtt.MISSING in result["notes"]
    else:
        sides += ["brokers", "mosquitto", "made_ahead"]
        assert set(result["ratios"]) == {
            f"live_again{ours}_2_vs_mosquitto{theirs}"
            for ours in ("", "_reactive", "_brokers")
            for theirs in ("", "_made_ahead")
        }
        assert all(value > 0 for value in result["ratios"].values())
        assert figures["mosquitto_2_lost"] > 10
        assert figures["made_ahead_2_duplicated"] > 10
    for name in sides:
        for what in ("first", "live", "fresh"):
            assert 0 < figures[f"{name}_2_{what}_ms_p50"] <= figures[f"{name}_2_{what}_ms_p99"]
    assert figures["lost"] == figures["duplicated"] == 0
    assert figures["messages"] > 0
    assert result["notes"][-1] == "reactive: 0% of the hand-overs to B were prepared there"
