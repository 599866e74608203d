"""The benchmark of forwarding runs, checks what is delivered, and reports what it has to."""

import shutil

import pytest

from bench import forward
from psirp_sim.runtime import fastpath

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(autouse=True)
def few_links(monkeypatch):
    monkeypatch.setattr(forward, "LINKS", (8, 256))


@needs_compiler
@pytest.mark.skipif(fastpath.MISSING is not None, reason=str(fastpath.MISSING))
def test_all_contenders():
    result = forward.run(rounds=2, seconds=0.02)
    assert set(result) == {"ratios", "figures", "notes"}
    ratios, figures = result["ratios"], result["figures"]
    assert list(ratios) == [
        "python_8_vs_c",
        "accel_8_vs_c_mmsg",
        "accel_256_vs_c_mmsg",
        "accel_8_vs_python_8",
    ]
    assert all(value > 0 for value in ratios.values())
    for name in ("python", "accel", "c", "c_mmsg"):
        for turn in ("8", "8_fan4", "256", "256_fan4", "8_overload"):
            assert figures[f"{name}_{turn}_packets_per_s"] > 1_000
        assert 0 <= figures[f"{name}_8_overload_lost_percent"] <= 100
    assert figures["c_mmsg_8_vs_echo"] > 0


@needs_compiler
def test_without_the_driver_in_c_it_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(fastpath, "MISSING", "the link driver in C is not there")
    result = forward.run(rounds=1, seconds=0.02)
    assert list(result["ratios"]) == ["python_8_vs_c"]
    assert "accel left out: the link driver in C is not there" in result["notes"]


def test_without_a_compiler_nothing_is_measured_and_that_is_said(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    result = forward.run()
    assert result["ratios"] == result["figures"] == {}
    assert "no C compiler" in result["notes"][-1]


@needs_compiler
def test_a_wrong_copy_is_an_error(monkeypatch):
    """The sinks expect other copies than a forwarder sends."""
    packet = forward._packet
    elsewhere = forward._link(5, 8)
    monkeypatch.setattr(
        forward, "_packet", lambda table, out, random: packet(table, [elsewhere], random)
    )
    with pytest.raises(RuntimeError, match="copies are wrong"):
        forward.run(rounds=1, seconds=0.02)
