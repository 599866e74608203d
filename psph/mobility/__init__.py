"""Mobility at a PSPH and on the hosts of its clients: the cores of `mobility/`, over HTTP.

At a PSPH:

* `hub_port`, `fabric_port`, `native_topics`: what the proxy core subscribes at;
* `sessions`, `routes`: clients over HTTP; `publish_routes`: what they publish;
* `peers`: other proxies, and which ones they are;
* `proxy`: puts them together; it runs with the hub's application.

At a client:

* `stream_port`, `topic_stream`, `event_reading`: the browser stream of a hub as the client's access
  point;
* `link`: the client's connection to a proxy; `publishing`: what it publishes;
* `roamer`: the client, for programs under asyncio;
* `moving`, `monitor`: when to move, and where to.

docs/roaming.md has the endpoints.
"""
