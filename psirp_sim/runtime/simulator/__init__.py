"""Virtual time for the cores: one seed, a faulty network, nodes that crash.

Read `world` first; `engine` is the queue of events, `nodes` and `channels` what happens in it,
`profiles` and `presets` how links behave.
"""

from psirp_sim.runtime.simulator.nodes import BEGINNING, Clock, SimulatedNode
from psirp_sim.runtime.simulator.presets import PRESETS, Preset
from psirp_sim.runtime.simulator.profiles import (
    Constant,
    Delay,
    Exponential,
    GilbertElliott,
    Independent,
    LinkProfile,
    LinkRetransmission,
    Traced,
    Uniform,
)
from psirp_sim.runtime.simulator.world import Simulator, stream

__all__ = [
    "BEGINNING",
    "PRESETS",
    "Clock",
    "Constant",
    "Delay",
    "Exponential",
    "GilbertElliott",
    "Independent",
    "LinkProfile",
    "LinkRetransmission",
    "Preset",
    "SimulatedNode",
    "Simulator",
    "Traced",
    "Uniform",
    "stream",
]
