"""Mobility at a PSPH and on the hosts of its clients: the cores of `mobility/`, over HTTP.

At a PSPH:

* `hub_port`, `fabric_port` with `fabric_base`, `native_topics`: what the proxy core subscribes at;
* `sessions`, `routes`: clients over HTTP; `native_routes`: native topics for them;
  `publish_routes`: what they publish;
* `peers`: other proxies, and which ones they are; `several`: what is said to them together;
* `proxy`: puts them together; it runs with the hub's application.

At a client:

* `stream_port`, `topic_stream`, `event_reading`: the browser stream of a hub as the client's access
  point;
* `link`: the client's connection to a proxy; `publishing`: what it publishes;
* `roamer`: the client, for programs under asyncio; `roaming_host`, `connections`: what many of them
  in one program share;
* `moving`, `monitor`: when to move, and where to.

At an MQTT broker:

* `mqtt`: brokers as a pub/sub system that clients move in, with `mqtt_connection` and, for the
  order of messages, `mqtt_stream`;
* `mqtt_entrance`: Positions for what publishers send that know nothing of them;
* `mqtt_proxy`: puts them together.

docs/roaming.md has the endpoints, docs/mobility-mqtt.md the brokers.
"""
