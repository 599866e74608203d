"""Any text is a topic at a broker; and what is no stream of a topic is not heard."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from identifiers import Position, PublisherId
from mobility import Message
from psph.commands.mqtt_proxy import mqtt_proxy
from psph.mobility.mqtt import MqttPubSub, mqtt_topic
from psph.mobility.mqtt_connection import Received

PUBLISHER = PublisherId(bytes(16))
TEXT = st.text(min_size=1, max_size=50).filter(lambda text: text.isprintable())


@given(TEXT, TEXT)
def test_a_topic_is_one_name_and_no_other(one, other):
    name = mqtt_topic(one)
    assert not set(name) & set("#+\0")
    assert not name.startswith("$")
    assert topic_matches_sub(f"{name}/+", f"{name}/{PUBLISHER}")
    assert (mqtt_topic(other) == name) == (one == other)


class Listening:
    def __init__(self):
        self.heard = []

    def deliver(self, topic, position, message):
        self.heard.append((topic, position, message))


def heard(stream, *pairs, retained=False):
    """What comes of a message on news/`stream` with these user properties."""
    env = SimpleNamespace(call_later=lambda *about: None)
    port, listening = MqttPubSub(env, "me"), Listening()
    port.subscribe("news", None, listening)
    message = Received(f"news/{stream}", b"body", dict(pairs), "", retained, False, 1, 1)
    port._deliver(port._topics["news"], stream, message)
    return listening.heard


POSITION = Position(PUBLISHER, 1, 7)


def test_streams_are_heard():
    told = [("position", str(POSITION)), ("kind", "alarm")]
    assert heard(str(PUBLISHER), *told) == [("news", POSITION, Message(b"body", "alarm"))]
    assert heard("-") == [("news", None, Message(b"body"))]


@pytest.mark.parametrize("stream", ["sports", str(PublisherId(b"x" * 16))])
def test_a_topic_below_and_a_stream_of_somebody_else_are_not(stream):
    assert heard(stream) == []
    assert heard(stream, ("position", str(POSITION))) == []


@given(st.text(max_size=100))
def test_anything_may_stand_for_a_position(text):
    assert heard(str(PUBLISHER), ("position", text)) in ([], [("news", POSITION, Message(b"body"))])


def test_what_is_retained_says_only_where_a_stream_is():
    assert heard(str(PUBLISHER), ("position", str(POSITION)), retained=True) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "'nowhere' is no address: write HOST:PORT"),
        (["127.0.0.1:1883", "--entrance", "news/#"], "--entrance 'news/#' is no topic"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, said, tmp_path):
    result = CliRunner().invoke(mqtt_proxy, [*arguments, "--data", str(tmp_path)])
    assert result.exit_code == 2
    assert said in result.output
