"""From the trace files of many nodes to answers a person can look at, on Spark."""
