"""The stand-ins for Elvin, FioranoMQ and Siena: which constants they have and where from.

Two mechanisms, as the source describes the systems:

* **Elvin, FioranoMQ** broadcast publications among their nodes, keep subscriptions where they were
  made, and open a connection for each message and each subscription. Subscriptions follow each
  other: a round trip of the link to open the connection, then `handling`, which is fitted.
* **Siena** keeps connections and routes by subscription. A subscription counts as made when its
  bytes are delivered; the node then takes it in (`accept`), and when there is nothing more to take
  in passes it on to the node above, which makes a route of it (`install`).

Fitted, on the slopes of the source's table 3 (milliseconds per subscription, over GPRS):

* Elvin's `handling` on 905, FioranoMQ's on 676;
* Siena's `subscription_bytes` on 28 (basic): it is what the link's bandwidth makes of them;
* Siena's `accept` + `install` on 310 (ping); `accept` alone on the losses of basic (0, 2 and 10),
  since they last from the old handler's end to the first route.

A part of each slope is the download, which grows because messages gather while the client
subscribes: so the constants are a little smaller than the slopes. Everything else, the round trips
and the time that bytes take, is the link's. Nothing was fitted to the constant part of the delays.
"""

from __future__ import annotations

from dataclasses import dataclass

from psirp_sim.runtime.durations import MILLISECOND


@dataclass(frozen=True, slots=True)
class System:
    """One pub/sub system. Times are nanoseconds."""

    name: str
    broadcasts: bool
    """Publications go to every node; otherwise where a route leads."""
    keeps_connections: bool
    handling: int = 0
    """What the library takes for a subscription once its connection is open."""
    subscription_bytes: int = 60
    """A subscription as it is sent, without the header of its packet."""
    accept: int = 0
    """What a node takes to take in a subscription."""
    install: int = 0
    """What the node above takes to make a route of one."""

    def longest(self, subscriptions: int) -> int:
        """Until so many subscriptions, made at one node, are certainly in effect."""
        return subscriptions * (self.accept + self.install)


ELVIN = System("elvin", broadcasts=True, keeps_connections=False, handling=354 * MILLISECOND)
FIORANO = System("fioranomq", broadcasts=True, keeps_connections=False, handling=143 * MILLISECOND)
SIENA = System(
    "siena",
    broadcasts=False,
    keeps_connections=True,
    subscription_bytes=49,
    accept=70 * MILLISECOND,
    install=222 * MILLISECOND,
)

SYSTEMS = {system.name: system for system in (ELVIN, FIORANO, SIENA)}
