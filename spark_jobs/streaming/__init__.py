"""Latency while it happens: a Structured Streaming job over a growing trace directory.

* `windows` — the streaming query: from files to closed windows of time;
* `closing` — what is done with windows that closed: clocks, domains, rows;
* `output` — where rows go, each of them once: Parquet for jobs, one JSON file for the page;
* `following` — the job that is started, killed and started again.
"""
