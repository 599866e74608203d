"""The benchmarks of the hub run, count what arrived, and report what they have to."""

import shutil

import pytest

from bench import hub_browsers, hub_fanout, hub_power_safe, hub_processes, hub_subscribe


@pytest.mark.parametrize("sink", ["nginx", "python"])
def test_fan_out(monkeypatch, sink):
    if sink == "python":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    elif hub_processes.find_nginx() is None:
        pytest.skip("nginx is not installed")
    result = hub_fanout.run(callbacks=40, rounds=2)
    assert set(result) == {"ratios", "figures", "notes"}
    assert list(result["ratios"]) == ["vs_bare_client", "vs_flask_websub"]
    assert all(value > 0 for value in result["ratios"].values())
    assert result["figures"]["deliveries_verified"] == 40 * 3 * 3
    assert f"the sink was {sink}" in result["notes"][0]


def test_fan_out_without_flask_websub(monkeypatch):
    monkeypatch.setattr(hub_fanout.importlib.util, "find_spec", lambda name: None)
    result = hub_fanout.run(callbacks=10, rounds=1)
    assert list(result["ratios"]) == ["vs_bare_client"]
    assert any("Flask-WebSub is not installed" in note for note in result["notes"])


def test_a_delivery_too_many_is_an_error():
    sink = hub_processes.Sink(None, "http://127.0.0.1:1", "none")
    twice = [(1.0, "/callback/0"), (1.0, "/callback/0")]
    with pytest.raises(RuntimeError, match="1 callbacks got 2 deliveries"):
        hub_fanout._check("ours", twice, sink, 2)


def test_subscriptions():
    result = hub_subscribe.run(subscriptions=70, rounds=2)
    assert result["ratios"]["vs_bare_server"] > 0
    figures = result["figures"]
    assert figures["subscriptions_verified"] == 3 * 70
    assert figures["verified_per_s"] > 0
    assert 0 < figures["answer_ms_p50"] <= figures["answer_ms_p99"]


def test_power_safety():
    result = hub_power_safe.run(alone=5, together=70, rounds=1)
    assert set(result["ratios"]) == {"answer_vs_usual", "throughput_vs_usual"}
    assert all(value > 0 for value in (*result["ratios"].values(), *result["figures"].values()))


def test_browsers():
    result = hub_browsers.run(browsers=50, updates=3)
    figures = result["figures"]
    assert figures["events_verified"] == 150
    assert 0 < figures["ms_to_reach_the_first_p50"] <= figures["ms_to_reach_all_p50"]
    assert figures["kib_per_browser"] > 0
