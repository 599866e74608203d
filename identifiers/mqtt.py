"""MQTT topics as URLs: mqtt://host/level/level, and the way from and to MQTT's own names.

The path without its first slash is the topic name. Empty levels count, as they do in MQTT
(a//b, a leading or a final slash), so nothing is removed from the path; a level that a URL
library would remove or split ("..", an encoded slash) is refused. So are wildcards: a topic is
one name.
"""

from typing import Final

from identifiers import authority, percent
from identifiers.authority import Site
from identifiers.errors import InvalidMqttTopic, shown
from identifiers.forms import NEVER_ALLOWED, Canonical, bounded

# The characters of a path segment (RFC 3986 pchar), but for "+", which is a wildcard.
_RAW: Final = percent.SUB_DELIMS.replace("+", "") + ":@"


def canonical_mqtt(scheme: str, rest: str) -> Canonical:
    """The canonical form of the topic `scheme`:`rest`."""
    if "#" in rest:
        raise _wildcard("#")
    if "?" in rest:
        raise InvalidMqttTopic('an mqtt topic has no query: write %3F for a "?" in a level')
    site, path, _, _ = authority.split(scheme, rest)
    return _canonical(site, [percent.decode(level) for level in path[1:].split("/")])


def mqtt_topic_url(host: str, name: str) -> str:
    """The canonical topic for the MQTT topic `name` at the broker `host` (or "host:port")."""
    return _canonical(authority.site("mqtt", host), name.split("/")).text


def mqtt_name(canonical: str) -> str:
    """The MQTT topic name of a canonical mqtt topic; the inverse of `mqtt_topic_url`."""
    scheme, _, rest = canonical.partition(":")
    if scheme != "mqtt":
        raise InvalidMqttTopic(
            f"{shown(canonical)} is no mqtt topic: pass a canonical one, such as mqtt://host/a/b"
        )
    return percent.decode(authority.split(scheme, rest).path[1:])


def _canonical(site: Site, levels: list[str]) -> Canonical:
    if levels == [""]:
        raise InvalidMqttTopic(
            f"the topic name is empty: write one, such as mqtt://{site.text}/sensors/temperature"
        )
    for level in levels:
        _check_level(level)
    path = "/".join([percent.encode(level, raw=_RAW) for level in levels])
    return bounded(f"mqtt://{site.text}/{path}", site.host)


def _check_level(level: str) -> None:
    if level in (".", ".."):
        raise InvalidMqttTopic(
            f'the level "{level}" would be removed as a dot segment: use another name for it'
        )
    if "/" in level:
        raise InvalidMqttTopic(
            'a level contains an encoded "/", which MQTT cannot tell from a separator: '
            "write a plain one"
        )
    for character in "+#":
        if character in level:
            raise _wildcard(character)
    if found := NEVER_ALLOWED.search(level):
        raise InvalidMqttTopic(
            f"a level contains the control character U+{ord(found[0]):04X}: remove it"
        )


def _wildcard(character: str) -> InvalidMqttTopic:
    return InvalidMqttTopic(
        f'"{character}" is a wildcard in MQTT: name one topic, without wildcards'
    )
