"""Forwarding: packets move by the filter in their header, and nothing is kept per flow.

`table` is the decision about one packet, immutable and pure; link drivers (the simulator's, the
Python and the C one of `runtime`) apply it to data packets.
"""
