"""What all kinds of topic have in common: what goes in and what comes out.

Each kind (web.py, jids.py, mqtt.py) turns its spelling into a Canonical; canonical.py picks the
kind by the scheme.
"""

import re
from typing import Final, NamedTuple

from identifiers.errors import ControlCharacter, SurroundingWhitespace, TopicTooLong

MAX_CANONICAL: Final = 2_048
# No spelling this long has a canonical form within the limit, except by escapes and dot segments
# that only waste our time.
MAX_SPELLING: Final = 8_192

# C0, DEL, C1, and halves of surrogate pairs (which have no UTF-8 form).
NEVER_ALLOWED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Canonical(NamedTuple):
    """A topic in canonical form, and the host in it that decides its zone."""

    text: str
    host: str


def check_spelling(topic: str) -> None:
    """Refuse what no kind of topic may contain, before anything looks at its parts."""
    if len(topic) > MAX_SPELLING:
        raise TopicTooLong(
            f"the topic has {len(topic):,} characters: use one whose canonical form "
            f"has at most {MAX_CANONICAL:,} bytes"
        )
    if found := NEVER_ALLOWED.search(topic):
        raise ControlCharacter(
            f"the topic contains the character U+{ord(found[0]):04X}, which no URL may hold: "
            "remove it, or percent-encode it if it is meant"
        )
    if topic != topic.strip():
        raise SurroundingWhitespace("the topic begins or ends with white space: remove it")


def bounded(text: str, host: str) -> Canonical:
    """The canonical form, unless it is too long. `text` is ASCII, so characters are bytes."""
    if len(text) > MAX_CANONICAL:
        raise TopicTooLong(
            f"the topic has {len(text):,} bytes in canonical form: "
            f"use one of at most {MAX_CANONICAL:,}"
        )
    return Canonical(text, host)
