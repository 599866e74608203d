"""The Pub/Sub Proxy Hub between a WebSub hub and the fabric. Read it in this order.

* `ports`: what the proxy asks of its hub and of DNS; `settings`;
* `control`: the Control Function: who wants which topic, on which side, until when;
* `mapping`: the Mapping/Conversion Function: topic <-> <SId, RId>, and what is not what it says;
* `origin`: topics of our hosts on their way into the fabric; `inflow`: topics wanted here, on
  their way out of it (the PSIRP API is `psirp_sim.client`);
* `messages`, `asking`, `answering`: the zone channels, on which proxies ask each other;
* `proxy`: puts them together;
* `suite`: the faults they must survive.

All of it are cores without I/O. `psph.facades` binds them to HTTP, `psph.roles.proxy` runs them.
"""
