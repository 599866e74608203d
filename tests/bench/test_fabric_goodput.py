"""The benchmark of goodput runs, counts what arrives, and reports what it has to."""

import pytest

from bench import fabric_goodput
from bench.processes import Process

SMALL = {"rounds": 1, "megabytes": 1, "lossy_rounds": 1}


def test_the_form_of_the_result():
    result = fabric_goodput.run(**SMALL)
    assert set(result) == {"ratios", "figures", "notes"}
    assert list(result["ratios"]) == ["mb_s_vs_tcp_1", "mb_s_vs_tcp_10"]
    assert all(value > 0 for value in result["ratios"].values())
    figures = result["figures"]
    for receivers in (1, 10):
        for system in ("ours", "tcp", "tcp_1448", "loss_2_percent"):
            assert figures[f"{system}_mb_s_{receivers}"] > 0
        assert figures[f"ours_packets_vs_least_{receivers}"] >= 1
        assert figures[f"loss_2_percent_packets_vs_least_{receivers}"] > 1
    assert figures["link_driver"] in ("c", "python")
    # By four systems: three publications to one, two to ten.
    assert figures["publications_verified"] == 4 * (3 * 1 + 2 * 10)


def test_a_publication_too_few_is_an_error(monkeypatch):
    ask = Process.ask

    def answered(process, question, about=None):
        answer = ask(process, question, about)
        if question == "counts":
            answer["lossy_10"][3] -= 1
        return answer

    monkeypatch.setattr(Process, "ask", answered)
    with pytest.raises(RuntimeError, match="other numbers of publications"):
        fabric_goodput.run(**SMALL)
