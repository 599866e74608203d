"""Topology: from the links that are up to the filters that packets carry.

Which links are up: `neighbours` and `link_state`, which make the `graph`. Filters: `choice` decides
which ones a tree gets, with `numbering` for the bits of exact ones, `spread` to follow a packet
and count its copies, `splitting` to cut up large trees, and `filter_maker` to remember them.
Who gets them: `manager` hands them out, `attachment` receives them.
"""
