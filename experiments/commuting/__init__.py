"""A crowd of subscribers that commutes between two brokers, and three ways to keep up with it.

In reading order: `itinerary` (who is where, and when), `wires` (messages over a link that comes and
goes), `worker` (what a broker takes for what it does, and what that is measured by), `store` (a
queue of so many bytes), `words` and `broker` (what the two baselines have in common), `durable`
(durable subscriptions at every visited broker), `neighbours` and `paper` (the source's pro-active
brokers), `fabric`, `ours` and `ours_client` (the shipped cores of mobility/ on a system that does
not flood), `ledger` (what came of it), `scene` (the world).
"""
