"""Traces of a world that never was, with the truth beside them: `psph traces generate`.

In reading order:

* `settings` — what can be asked for;
* `world` — who there is: domains, nodes and their clocks, links, topics, subscribers;
* `rows` — events as columns of numbers, many at a time;
* `crossings` — updates on their way: what is lost, doubled, late, and how long all takes;
* `moving` — clients that move from one domain to another;
* `probing` — clock probes, and who subscribed;
* `writing` — from numbers to Parquet files as nodes write them;
* `truth` — what really happened, for whoever checks a table;
* `generator` — all of it, in pieces that fit into memory.

No randomness but the seed's, no clock: the same settings give the same rows.
"""
