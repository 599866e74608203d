"""The benchmark of the simulator measures the simulator."""

from bench import sim
from psirp_sim.runtime.durations import SECOND


def test_the_ring_passes_every_packet_on():
    world = sim.ring(sim.LinkProfile(), nodes=10)
    world.run_for(SECOND)
    # 200 packets, a millisecond a hop; the nodes' ten boots are events too.
    assert world.steps == 200 * 1_000 + 10
    assert all(channel.counters.lost == 0 for channel in world.channels.values())


def test_the_form_of_the_result():
    result = sim.run(events=5_000, rounds=5)  # of which one is not disturbed
    assert set(result) == {"ratios", "figures", "notes"}
    assert 0 < result["ratios"]["vs_bare_queue"] < 1
    assert result["figures"]["events_per_s"] > 1_000
