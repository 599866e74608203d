"""Mobility at a PSPH and on the hosts of its clients: the cores of `mobility/`, over HTTP.

At a PSPH:

* `hub_port`, `fabric_port`, `native_topics`: what the proxy core subscribes at;
* `sessions`, `routes`: clients over HTTP; `peers`: other proxies, and which ones they are;
* `proxy`: puts them together; it runs with the hub's application.

At a client:

* `stream_port`: the browser stream of a hub as the client's access point; `event_reading`;
* `link`: the client's connection to a proxy; `publishing`: what it publishes;
* `roamer`: the client, for programs under asyncio;
* `moving`, `monitor`: when to move, and where to.

docs/mobility.md has the endpoints.
"""
