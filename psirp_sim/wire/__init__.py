"""What stands on the wire, byte by byte. docs/wire.md is the same for people.

`data` is the header that forwarding nodes read; `control` the packets neighbours and servers
exchange, with their MAC. Codecs only: what a packet means is its protocol's business.
"""
