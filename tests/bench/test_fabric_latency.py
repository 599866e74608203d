"""The benchmark of latency runs, counts what arrives, and reports what it has to."""

from bench import fabric_latency, mqtt

SMALL = {"rounds": 2, "messages": 20, "flood": 100}


def test_the_form_of_the_result():
    result = fabric_latency.run(**SMALL)
    assert set(result) == {"ratios", "figures", "notes"}
    figures = result["figures"]
    measured = ["one_node", "three_nodes"]
    if mqtt.program() is None:
        assert result["ratios"] == {}
        assert result["notes"][-1] == mqtt.MISSING
    else:
        assert list(result["ratios"]) == ["p50_vs_mosquitto", "p99_vs_mosquitto"]
        assert all(value > 0 for value in result["ratios"].values())
        assert figures["mosquitto_messages_per_s"] > 0
        measured.append("mosquitto")
    for name in measured:
        assert 0 < figures[f"{name}_p50_us"] <= figures[f"{name}_p99_us"]
        assert figures[f"{name}_after_silence_us"] > 0
    for name in ("unsigned", "signed"):
        assert figures[f"{name}_messages_per_s"] > 0
    assert figures["sign_us"] > 0
    assert figures["verify_us"] > 0
    assert figures["link_driver"] in ("c", "python")
    each = 2 * (20 + fabric_latency.WARM_UP + 1)
    floods = len(measured)  # signed, unsigned and mosquitto
    assert figures["messages_verified"] == each * len(measured) + 100 * floods


def test_without_mosquitto_the_reference_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(mqtt, "program", lambda: None)
    result = fabric_latency.run(**SMALL)
    assert result["ratios"] == {}
    assert result["notes"][-1] == mqtt.MISSING
    assert result["figures"]["one_node_p50_us"] > 0
    assert not any("mosquitto" in name for name in result["figures"])
