"""Mobility at a PSPH and on the hosts of its clients: the cores of `mobility/`, over HTTP.

At a PSPH:

* `hub_port`, `fabric_port`: what the proxy core subscribes at;
* `sessions`, `routes`: clients over HTTP; `peers`: other proxies, and which ones they are;
* `proxy`: puts them together; it runs with the hub's application.

At a client:

* `stream_port`: the browser stream of a hub as the client's access point;
* `link`: the client's connection to a proxy; `roamer`: the client, for programs under asyncio;
* `choosing`, `monitor`: when to move, and where to.

At an MQTT broker:

* `mqtt`: brokers as a pub/sub system that clients move in, with `mqtt_connection` and, for the
  order of messages, `mqtt_stream`;
* `mqtt_entrance`: Positions for what publishers send that know nothing of them;
* `mqtt_proxy`: puts them together.

docs/mobility.md has the endpoints, docs/mobility-mqtt.md the brokers.
"""
