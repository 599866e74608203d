"""Chat over the fabric: a conversation is a pair of topics, and a message a version of one.

* `message`, `presence`: the documents that travel, and who is there by them;
* `tokens`: what shows that somebody is who they say;
* `conversation`: the topics of a stream, where a reader is in them, what it has seen;
* `sse`, `events`, `showing`: what a client reads from a stream, and how a terminal may show it;
* `hubs`, `client`: a client that goes on whatever happens to its PSPH.

Those above the last line do no I/O.

Who serves it over HTTP is `psph.facades.chat`.
"""
