"""Publications that arrive: every version once and in order, over links that lose packets.

Read in this order: `envelope` is what travels, `history` what a publisher keeps of a stream,
`outgoing` what of it is to be sent, `pacing` how fast, `sending` how it gets to its listeners;
`assembly` puts the pieces together again, `reception` follows a stream at a listener, `delivery`
hands it on in order to those who subscribed. `publisher` and `subscriber` bring them together;
`psirp_sim.client` is where applications meet them.
"""
