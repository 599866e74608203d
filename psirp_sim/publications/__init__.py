"""Publications that arrive: every version once and in order, over links that lose packets.

Read in this order: `envelope` is what travels, `history` what a publisher keeps of a stream,
`pacing` how fast it sends, `sending` how a stream gets to its listeners; `assembly` puts the
pieces together again, `reception` follows a stream at a listener, `delivery` hands it on in order
to those who subscribed. `psirp_sim.client` is where applications meet them.
"""
