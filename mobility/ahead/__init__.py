"""One hop ahead: a client's context is already where it goes next. In reading order:

* `words`: what proxies say to each other; `passes`: how they know who says it;
* `neighbours`: the learned neighbour graph of one proxy;
* `lines`, `conversation`, `preparing`: what a proxy prepares at its neighbours for its own clients;
* `waiting`, `contexts`: what it keeps for the clients of others;
* `preparation`: all of it, as the mobility proxy sees it; `settings`.

Preparation is never trusted to be complete: what a client consumed, and what it is owed by which
proxy, decides as without it. The design stands in docs/proactive.md.
"""

from mobility.ahead.settings import AheadSettings

__all__ = ["AheadSettings"]
