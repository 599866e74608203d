"""Which topic a spelling means; the addresses below /t/ at which this hub serves topics included.

`PUBLIC_URL/t/TOPIC` is where anybody reads the latest version of TOPIC here. Whoever discovers that
address subscribes to it by this name: the ids and the canonical form are those of TOPIC, the
spelling stays the subscriber's. Such an address inside another one is refused.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from identifiers import InvalidTopic, Topic, identify
from identifiers.authority import site
from push_hub.errors import BadRequest

PATH: Final = "/t/"

_ADDRESS: Final = re.compile(r"(https?)://([^/?#]*)(/.*)", re.DOTALL | re.IGNORECASE)
_WEB: Final = re.compile(r"(https?):/", re.IGNORECASE)
_MERGED: Final = re.compile(r"\A(https?):/(?!/)", re.IGNORECASE)


def topic_of_path(rest: str) -> str:
    """The URL in what stands after /t/, query included, exactly as it is there.

    Some proxies merge slashes: `http:/x` is understood as `http://x`.
    """
    if not _WEB.match(rest):
        raise BadRequest(
            f"write the whole URL of a topic after {PATH}, such as {PATH}http://example.com/feed"
        )
    return _MERGED.sub(r"\1://", rest, count=1)


def is_web(topic: Topic) -> bool:
    """Whether there is something to fetch; what is no page of the web is only ever sent here."""
    return topic.canonical.startswith(("http:", "https:"))


class Naming:
    """From spellings to topics, for a hub at `public_url`."""

    def __init__(self, public_url: str) -> None:
        self._address = f"{public_url.rstrip('/')}{PATH}"
        self._site: str | None = None
        self._path = PATH
        if found := _ADDRESS.fullmatch(self._address):
            scheme, authority, self._path = found.groups()
            try:
                self._site = site(scheme.lower(), authority).text
            except InvalidTopic:
                self._site = None  # nobody can name it either

    def topic(self, spelling: str) -> Topic:
        """The topic that somebody names so. InvalidTopic, or BadRequest for a nested address."""
        rest = self._rest(spelling)
        if rest is not None:
            return replace(self.read_at(rest), spelling=spelling)
        topic = identify(spelling)
        self._check(topic)
        return topic

    def plain(self, topic: Topic) -> Topic:
        """The topic in its own spelling, if it is named by an address of this hub."""
        rest = self._rest(topic.spelling)
        return topic if rest is None else self.read_at(rest)

    def read_at(self, rest: str) -> Topic:
        """The topic that is read at /t/ + `rest`."""
        topic = identify(topic_of_path(rest))
        if self._rest(topic.spelling) is not None:
            raise _nested()
        self._check(topic)
        return topic

    def address(self, rest: str) -> str:
        """What the address /t/ + `rest` calls itself."""
        return self._address + rest

    def _rest(self, spelling: str) -> str | None:
        """What stands after /t/ in an address of this hub, by http or https."""
        if PATH not in spelling or self._site is None:
            return None
        found = _ADDRESS.fullmatch(spelling)
        if found is None or not found[3].startswith(self._path):
            return None
        rest = found[3].removeprefix(self._path)
        # The hub may share its host with a site that has a /t/ of its own.
        if not _WEB.match(rest) or site(found[1].lower(), found[2]).text != self._site:
            return None
        return rest

    def _check(self, topic: Topic) -> None:
        """A spelling in disguise (dot segments, escapes) would make the hub read from itself."""
        if PATH not in topic.canonical:
            return
        _, _, name = topic.canonical.partition("://")
        own = f"{self._site}{self._path}"
        if name.startswith(own) and _WEB.match(name.removeprefix(own)):
            raise _nested()


def _nested() -> BadRequest:
    return BadRequest(f"an address below {PATH} of this hub stands for a topic: name the topic")
