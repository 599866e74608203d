"""Topology: from the links that are up to the filters that packets carry.

`graph` holds the links and finds trees, `spread` follows a packet through them, `numbering` gives
exact filters their bits, and `choice` decides which filters a tree gets.
"""
