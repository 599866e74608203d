"""The fault schedules of mobility: clients that move at random while everything fails.

One to twenty clients, two to ten proxies, links that lose and reorder, crashes, pauses, partitions.
Clients move out and in, vanish, move on before they arrived, and publish; sometimes two of them
have one secret.

What must hold (`model` says what counts):

* **safety**, at every event: each client consumes every version once and in order, or is told of a
  gap that the model allows; no client tells a Position that is not on its disk; what they publish
  comes into the system once and in order;
* **liveness**, once the faults are over: every client is live and has consumed everything, what
  clients published has come into the system, no proxy keeps anything for stays that are over, and
  of two with one secret one is live and the other knows of it.

`trial` is the world and what happens in it, `faults` what goes wrong, `nodes` the cores in it and
what they say, `system` the pub/sub system, `care` and `model` what was promised. `proactive` is the
same with proxies that prepare, and `witness` hears what these say to each other.
"""

from __future__ import annotations

from mobility.client import MobileClient
from mobility.proxy import MobilityProxy
from mobility.suite.trial import MobilityTrial
from psirp_sim.runtime.schedules import Trial


class MobilitySuite:
    """The suite `mobility`; a test gives it cores with planted bugs."""

    name = "mobility"
    summary = "clients that move: every version once, in order, or a gap that was stated"
    most_faults = 12

    def __init__(
        self,
        client: type[MobileClient] = MobileClient,
        proxy: type[MobilityProxy] = MobilityProxy,
    ) -> None:
        self.client = client
        self.proxy = proxy

    def trial(self, seed: int) -> Trial:
        return MobilityTrial(seed, self)
