"""The canonical form of a topic: one text for all spellings that mean the same.

This module picks the kind of topic by its scheme; web.py, jids.py and mqtt.py hold the rules.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from identifiers.errors import RelativeTopic, UnsupportedScheme, shown
from identifiers.forms import Canonical, check_spelling
from identifiers.jids import canonical_jid
from identifiers.mqtt import canonical_mqtt
from identifiers.web import canonical_web

_KINDS: Final[Mapping[str, Callable[[str, str], Canonical]]] = {
    "http": canonical_web,
    "https": canonical_web,
    "xmpp": canonical_jid,
    "mqtt": canonical_mqtt,
}

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")


def canonical_topic(topic: str) -> str:
    """The canonical form of `topic`, pure ASCII, or an InvalidTopic that says why there is none."""
    return canonicalise(topic).text


def canonicalise(topic: str) -> Canonical:
    """Like `canonical_topic`, with the host that decides the zone."""
    check_spelling(topic)
    found = _SCHEME.match(topic)
    if found is None:
        raise RelativeTopic(
            "the topic has no scheme: write the whole URL, such as http://example.com/feed"
        )
    scheme = found[1].lower()
    kind = _KINDS.get(scheme)
    if kind is None:
        raise UnsupportedScheme(
            f"{shown(found[1])} is not a scheme we serve: "
            "use a topic that begins with http://, https://, xmpp: or mqtt://"
        )
    return kind(scheme, topic[found.end() :])
