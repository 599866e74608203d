"""The Pub/Sub Proxy Hub between a WebSub hub and the fabric. Read it in this order.

* `ports`: what the proxy asks of its hub and of DNS; `settings`;
* `control`: the Control Function: who wants which topic, on which side, until when;
* `mapping`: the Mapping/Conversion Function: topic <-> <SId, RId>, and what is not what it says;
* `origin`, `own_topics`: topics of our hosts on their way into the fabric; `cluster`, `writing`:
  the other proxies of these hosts, and whose turn it is to write a topic;
* `inflow`: topics wanted here; `listening`, `turns`: on their way out of the fabric, whoever writes
  them; `recalling`: what somebody misses of them (the PSIRP API is `psirp_sim.client`);
* `messages`, `asking`, `answering`: the zone channels, on which proxies ask each other;
  `gathering`: what changes often is said together;
* `proxy`: puts them together;
* `suite`, `cluster_suite`: the faults they must survive; `model`, `peers`: the worlds of these.

All of it are cores without I/O. `psph.facades` binds them to HTTP, `psph.roles.proxy` runs them.
"""
