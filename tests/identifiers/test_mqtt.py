"""Between MQTT topic names and topics. The rules for MQTT topics as URLs are in the vectors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identifiers import (
    InvalidHost,
    InvalidMqttTopic,
    InvalidTopic,
    TopicTooLong,
    canonical_topic,
    mqtt_name,
    mqtt_topic_url,
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sensors/temperature", "sensors/temperature"),
        ("/a//b/", "/a//b/"),
        ("/", "/"),
        ("$SYS/broker", "$SYS/broker"),
        ("100 %/ü?", "100%20%25/%C3%BC%3F"),
        ("%41", "%2541"),
        ("a:b@c", "a:b@c"),
    ],
)
def test_a_name_and_its_url(name: str, path: str) -> None:
    url = mqtt_topic_url("Broker.example:1884", name)
    assert url == f"mqtt://broker.example:1884/{path}"
    assert canonical_topic(url) == url
    assert mqtt_name(url) == name


@pytest.mark.parametrize("name", ["", "a/+", "#", "a/../b", ".", "a\x00", "a\ud800", "a\n"])
def test_what_is_no_topic_name(name: str) -> None:
    with pytest.raises(InvalidMqttTopic):
        mqtt_topic_url("broker.example", name)


@pytest.mark.parametrize("host", ["", "a/b", "a?b", "a#b", "a b"])
def test_what_is_no_broker(host: str) -> None:
    with pytest.raises(InvalidHost):
        mqtt_topic_url(host, "a")


def test_a_name_too_long_for_a_topic() -> None:
    with pytest.raises(TopicTooLong):
        mqtt_topic_url("broker.example", "a" * 3_000)


def test_only_mqtt_topics_have_a_name() -> None:
    with pytest.raises(InvalidMqttTopic, match="no mqtt topic"):
        mqtt_name("http://example.com/a")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=12) | st.text("a/+#.%?é ", max_size=8))
def test_names_come_back_as_they_were(name: str) -> None:
    try:
        url = mqtt_topic_url("broker.example", name)
    except InvalidTopic:
        return
    assert canonical_topic(url) == url
    assert mqtt_name(url) == name
