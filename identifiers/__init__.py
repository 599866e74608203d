"""Names and positions: from a topic to its ids, and the place of an update in its stream.

Pure functions and value types; the only file ever read is the public suffix list. The way back
from ids to a topic needs a memory and is not here.

    >>> from identifiers import identify
    >>> identify("HTTP://www.Example.co.uk:80/a/../feed").canonical
    'http://www.example.co.uk/feed'
    >>> identify("HTTP://www.Example.co.uk:80/a/../feed").zone
    'example.co.uk'
"""

from identifiers.canonical import canonical_topic
from identifiers.errors import (
    BadPercentEncoding,
    ControlCharacter,
    InvalidHost,
    InvalidId,
    InvalidJid,
    InvalidMqttTopic,
    InvalidPort,
    InvalidPosition,
    InvalidTopic,
    InvalidZone,
    RelativeTopic,
    SurroundingWhitespace,
    TopicTooLong,
    UnsupportedScheme,
    UserinfoInTopic,
)
from identifiers.hosts import is_address, normalise_host
from identifiers.ids import RendezvousId, ScopeId, members_item_id, rendezvous_id, scope_id
from identifiers.jids import conversation_topic, is_conversation, is_of_jid, jid_topic
from identifiers.mqtt import mqtt_name, mqtt_topic_url
from identifiers.position import Position, PublisherId
from identifiers.topics import Topic, ZoneChannel, identify, zone_channel
from identifiers.zones import ID_VERSION, IdVersion, zone_of_host

__all__ = [
    "ID_VERSION",
    "BadPercentEncoding",
    "ControlCharacter",
    "IdVersion",
    "InvalidHost",
    "InvalidId",
    "InvalidJid",
    "InvalidMqttTopic",
    "InvalidPort",
    "InvalidPosition",
    "InvalidTopic",
    "InvalidZone",
    "Position",
    "PublisherId",
    "RelativeTopic",
    "RendezvousId",
    "ScopeId",
    "SurroundingWhitespace",
    "Topic",
    "TopicTooLong",
    "UnsupportedScheme",
    "UserinfoInTopic",
    "ZoneChannel",
    "canonical_topic",
    "conversation_topic",
    "identify",
    "is_address",
    "is_conversation",
    "is_of_jid",
    "jid_topic",
    "members_item_id",
    "mqtt_name",
    "mqtt_topic_url",
    "normalise_host",
    "rendezvous_id",
    "scope_id",
    "zone_channel",
    "zone_of_host",
]
