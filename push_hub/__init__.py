"""A WebSub hub, complete on its own: subscriptions, publishing, distribution, browser streams.

It serves WebSub, PubSubHubbub 0.4 and, to clients that ask for it, 0.3. Read it in this order;
what stands in one block may import what stands above it.

Rules, pure functions and tables:

* `lifecycle`: the states of a subscription and what leads from one to another;
* `requests`: forms from strangers; `callbacks`: their URLs; `leases`, `retries`, `signatures`;
* `naming`: which topic a spelling means, the hub's own addresses below /t/ included;
* `links`, `discovery`: Link headers, and what a document says about its hub and itself;
* `news`, `feeds`: which entries are new, cutting out the known ones, making them safe to show;
* `addresses`: which addresses the hub may connect to; `limits`: rates and slots per host;
* `following`: how to hear of topics that nobody pings here, and which names of one are believed;
* `masking`: URLs as strangers may see them; `event_stream`, `stream_events`:
  the events of /stream, made and read;
* `carrier`, `guide`, `siblings`: who brings updates from elsewhere, which hubs of our domain have a
  topic, and the other hubs of our domain; interfaces.

Memory:

* `store`: an interface, its records, and the engine on SQLite. The store owns every promise about
  loss and order: what it accepted survives the process; positions are assigned, deliveries queued
  and waiting ones superseded in the transaction that records an update.

Edges, on asyncio and aiohttp:

* `connecting`: HTTP clients that cannot be led to a refused address;
* `carrying`: asks the carrier once for all who wait, and tells it who reads;
* `verification`: asks callbacks whether they meant it, and tells them of denials;
* `fetching`: one conditional GET, bounded; `intake`: from a ping to a recorded update;
* `distribution`: from a recorded update to POSTs, retried; `content`: what exactly is sent;
* `streams`: from a recorded update to browsers, `stream_routes` and `resuming`: where each goes on;
  `cursor`: the ids of their events;
  `recent`: the last updates, in memory; `recalling`: what one has missed, had from elsewhere;
* `interest`: topics that others want, and waiting for them; `readers`: whoever reads below /t/;
  `reader_routes`: answers them;
* `carried`: leaves to the carrier what it brings;
* `upstream`: follows what nobody pings here; `upstream_asking`: asks other hubs;
  `upstream_routes`: where they reach it;
* `stream_carrier`: the carrier of a hub that has a guide: brings topics by stream;
* `context`, `tracing`: what the parts share; `housekeeping`: leases that end, what is forgotten;
  `hub`: puts them together;
* `pages`: for people: a page to watch topics live, diagnostics;
* `app`: the routes, `create_app()`; `admin`: those of the operator; `keys`, `metrics`, `logs`.

The other side, for which no hub has to run here:

* `client`: a Subscriber for other people's programs, pings, and checks of what a site says.

An update walks through `intake` -> `store.record` -> `hub.recorded` -> `distribution` and
`streams`. Another source of updates (a fabric) is a carrier: it calls `Hub.accept` with the
Position they have, and learns of ours as a listener.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from push_hub.app import create_app
    from push_hub.carrier import Carrier
    from push_hub.client import Notification, StreamFollower, Subscriber
    from push_hub.guide import Guide
    from push_hub.hub import Hub
    from push_hub.settings import HubSettings, Publisher
else:
    _HOMES = {
        "Carrier": "carrier",
        "Guide": "guide",
        "Hub": "hub",
        "HubSettings": "settings",
        "Notification": "client",
        "Publisher": "settings",
        "StreamFollower": "client",
        "Subscriber": "client",
        "create_app": "app",
    }

    def __getattr__(name):
        # Loaded when somebody asks: who reads a configuration, or subscribes, needs no server.
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Carrier",
    "Guide",
    "Hub",
    "HubSettings",
    "Notification",
    "Publisher",
    "StreamFollower",
    "Subscriber",
    "create_app",
]
