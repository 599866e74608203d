"""Clients that move between proxies of a pub/sub system: nothing lost, nothing twice.

Cores without I/O, in reading order:

* `port`: all that is known of a pub/sub system; `service`: what a client may ask for;
* `identity`, `messages`: who is who, and what is said;
* `client`, with `arrival` (a move-in: `collecting`, and `merging`, the merge queue), `attendance`,
  `debts`, `memory`, `calls`, `outgoing`, `events`;
* `proxy`, with `stays`, `handler`, `buffer`, `claims` and `relaying`;
* `ahead`: contexts prepared at neighbours, one hop ahead of the client;
* `settings`, `tracing`;
* `suite`: the fault schedules, with a pub/sub system of their own.

The design, and what an adapter has to do, stand in docs/mobility.md.
"""

from mobility.client import MobileClient, Stage
from mobility.events import Gap, MovedIn, MovedOut, Reset, Superseded, Update
from mobility.identity import SECRET_BYTES, client_id
from mobility.outgoing import OutgoingFull
from mobility.port import AccessPoint, After, Listener, Message, PubSub, Subscription
from mobility.proxy import MobilityProxy
from mobility.service import Mode, Quota, Sacrifice, Service
from mobility.settings import ClientSettings, ProxySettings

__all__ = [
    "SECRET_BYTES",
    "AccessPoint",
    "After",
    "ClientSettings",
    "Gap",
    "Listener",
    "Message",
    "MobileClient",
    "MobilityProxy",
    "Mode",
    "MovedIn",
    "MovedOut",
    "OutgoingFull",
    "ProxySettings",
    "PubSub",
    "Quota",
    "Reset",
    "Sacrifice",
    "Service",
    "Stage",
    "Subscription",
    "Superseded",
    "Update",
    "client_id",
]
