"""The benchmark of fan-out runs, counts what arrives, and reports what it has to."""

import pytest

from bench import fabric_fanout, mqtt
from bench.processes import Process

SMALL = {"rounds": 2, "messages": 30, "subscribers": 6}


def test_the_form_of_the_result():
    result = fabric_fanout.run(**SMALL)
    assert set(result) == {"ratios", "figures", "notes"}
    figures = result["figures"]
    systems = 1 if mqtt.program() is None else 2
    if systems == 1:
        assert result["ratios"] == {}
        assert result["notes"][-1] == mqtt.MISSING
    else:
        assert list(result["ratios"]) == ["deliveries_vs_mosquitto"]
        assert result["ratios"]["deliveries_vs_mosquitto"] > 0
        assert figures["mosquitto_deliveries_per_s"] > 0
    assert figures["ours_deliveries_per_s"] > 0
    assert figures["subscribers"] == 6
    assert figures["link_driver"] in ("c", "python")
    assert figures["deliveries_verified"] == systems * 2 * 30 * 6


def test_a_delivery_too_few_is_an_error(monkeypatch):
    monkeypatch.setattr(mqtt, "program", lambda: None)
    ask = Process.ask

    def answered(process, question, about=None):
        answer = ask(process, question, about)
        return [*answer[1:], answer[0] - 1] if question == "counts" else answer

    monkeypatch.setattr(Process, "ask", answered)
    with pytest.raises(RuntimeError, match="were sent to each"):
        fabric_fanout.run(rounds=1, messages=5, subscribers=2)
