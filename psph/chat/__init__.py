"""Chat over the fabric: a conversation is a pair of topics, and a message a version of one.

* `message`, `presence`: the documents that travel, and who is there by them;
* `tokens`: what shows that somebody is who they say;
* `conversation`: the topics of a stream, where a reader is in them, what it has seen;
* `following`, `client`: the other side: a client that goes on whatever happens to its PSPH.

Who serves it over HTTP is `psph.facades.chat`.
"""
