"""A client that moves once, over stand-ins for the pub/sub systems of the mobility support service.

In reading order: `systems` (the three stand-ins and what was fitted of them), `lines` (connections
over simulated links), `routers` (the nodes of a system), `access` (mobility's port to it),
`scene` (the world and the move), `trace` (what is read off it). Client library and proxies are the
shipped cores of mobility/.
"""
