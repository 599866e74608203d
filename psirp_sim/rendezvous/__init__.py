"""Matching by name: several servers, of which any may die, and the clients that use them.

A client holds the truth about what it publishes and subscribes to, and keeps two servers told
(`homes`, `client`). A server (`server`) keeps what it was told (`registrations`) and tells
publishers who listens. Who may write a topic is voted on by the servers of a numbered view
(`membership`, `voting`, `writer`).
"""
