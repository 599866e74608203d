"""The benchmark of the rendezvous runs, counts what servers hold, and reports what it has to."""

import pytest

from bench import rendezvous


def test_the_form_of_the_result():
    result = rendezvous.run(rounds=2, requests=40, matches=10)
    assert set(result) == {"ratios", "figures", "notes"}
    assert list(result["ratios"]) == [
        "vs_plain_sqlite_server",
        "publish_vs_plain_sqlite_server",
        "subscribe_vs_plain_sqlite_server",
    ]
    assert all(value > 0 for value in result["ratios"].values())
    figures = result["figures"]
    for name in ("ours", "plain"):
        assert figures[f"{name}_publishes_per_s"] > 0
        assert figures[f"{name}_subscribes_per_s"] > 0
        assert figures[f"{name}_cpu_us_per_publish"] > 0
    for what in ("start_publish", "subscribed"):
        assert 0 < figures[f"{what}_ms_p50"] <= figures[f"{what}_ms_p99"]
    # Two rounds of publishing and subscribing, ten subscriptions that were matched, and the scope.
    assert figures["registrations_verified"] == 2 * 2 * 40 + 10 + 1


@pytest.mark.parametrize("server", ["ours", "plain"])
def test_a_server_that_holds_something_else_is_an_error(monkeypatch, server):
    ask = rendezvous.Process.ask

    def answered(process, question, about):
        answer = ask(process, question, about)
        return answer - 1 if question == "registrations" and process.name == server else answer

    monkeypatch.setattr(rendezvous.Process, "ask", answered)
    with pytest.raises(RuntimeError, match="the servers hold"):
        rendezvous.run(rounds=1, requests=10, matches=2)
