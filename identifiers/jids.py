"""XMPP addresses as topics: xmpp:alice@a, and the conversation xmpp:alice@a?to=bob@b.

A conversation is an ordered pair: what alice sends to bob is one topic, what bob answers is
another. Its zone is the sender's. Which characters a local part may hold: precis.py.
"""

from typing import Final

from identifiers import percent
from identifiers.errors import InvalidJid, shown
from identifiers.forms import Canonical, bounded
from identifiers.hosts import normalise_host
from identifiers.precis import username

# What RFC 5122 lets stand unencoded in a local part, besides unreserved characters.
_RAW: Final = "!$()*+,;="


def canonical_jid(scheme: str, rest: str) -> Canonical:
    """The canonical form of the topic `scheme`:`rest`."""
    if rest.startswith("//"):
        raise InvalidJid("an xmpp topic has no authority: write xmpp:alice@example.com without //")
    if "#" in rest:
        raise InvalidJid("an xmpp topic has no fragment: remove all from the # on")
    sender, mark, query = rest.partition("?")
    if not mark:
        return _topic(percent.decode(sender))
    key, _, recipient = query.partition("=")
    if key != "to" or "&" in recipient:
        raise InvalidJid(
            "the query of an xmpp topic is one recipient: "
            "write xmpp:alice@example.com?to=bob@example.org"
        )
    return _conversation(percent.decode(sender), percent.decode(recipient))


def jid_topic(jid: str) -> str:
    """The canonical topic of the bare JID `jid`, such as "alice@example.com"."""
    return _topic(jid).text


def conversation_topic(sender: str, recipient: str) -> str:
    """The canonical topic of what `sender` says to `recipient`, both bare JIDs."""
    return _conversation(sender, recipient).text


def is_of_jid(canonical: str) -> bool:
    """Whether a canonical topic is what somebody with a JID says, or whether they are there."""
    return canonical.startswith("xmpp:")


def is_conversation(canonical: str) -> bool:
    """Whether a canonical topic is what somebody says to somebody."""
    return is_of_jid(canonical) and "?" in canonical


def _topic(jid: str) -> Canonical:
    bare, host = _bare(jid)
    return bounded(f"xmpp:{bare}", host)


def _conversation(sender: str, recipient: str) -> Canonical:
    bare_sender, host = _bare(sender)
    bare_recipient, _ = _bare(recipient)
    return bounded(f"xmpp:{bare_sender}?to={bare_recipient}", host)


def _bare(jid: str) -> tuple[str, str]:
    """The JID in normal form, and its host."""
    if "/" in jid:
        raise InvalidJid(
            f"the JID {shown(jid)} names one device: write it without the / and what follows"
        )
    local, _, domain = jid.partition("@")
    if not local or not domain:
        raise InvalidJid(f"the JID {shown(jid)} is not complete: write one like alice@example.com")
    host = normalise_host(domain)
    return f"{percent.encode(username(local), raw=_RAW)}@{host}", host
