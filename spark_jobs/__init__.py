"""From the trace files of many nodes to answers a person can look at, on Spark (docs/report.md).

In reading order:

* `session` — starts Spark, without a word on the terminal; `errors`;
* `reading` — the events of a directory; `inventory` — which of its files count;
* `clock_probes`, `clocks`, `correcting` — one time for all nodes, and how sure it is;
* `journeys` — an update on its way to one who wants it, in one row: what most tables start from;
* `latency`, `losses`, `fan_out`, `handoffs`, `slowest`, `departures` — the tables;
* `answers` — all of them; `collected` — what comes to the driver, and its files;
* `report`, `plots`, `page`, `writing_up`, `progress`, `command` — `psph report`;
* `generating` — made-up traces of which everything is known; `traces_command` — `psph traces`;
* `streaming` — the same latencies while nodes write.

It knows traces and nothing else of psph. Everything but the clocks and the page is expressions that
Spark runs where the data is.
"""
