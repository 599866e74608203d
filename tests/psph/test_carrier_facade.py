"""The proxy as its hub sees it: whom it admits, and how long a topic is wanted for their sake."""

from __future__ import annotations

import asyncio

import pytest

from identifiers import Position, PublisherId, identify
from psph.facades.carrier import ADMISSION, ProxyCarrier
from psph.proxy.control import Side
from psph.proxy.model import ModelDirectory, ModelHub, ModelRegistry
from psph.proxy.ports import WebUpdate
from psph.proxy.proxy import Proxy
from psph.proxy.settings import ProxySettings
from push_hub.carrier import Recalled
from tests.psph.proxy.world import environment

TOPIC = identify("http://news.site-b.test/feed")


@pytest.fixture
def proxy():
    """One that has not begun: it answers nobody, and notes all wishes."""
    _, env = environment()
    settings = ProxySettings(("site-a.test",))
    directory = ModelDirectory(env, {}, delay=0)
    return Proxy(
        env, settings, None, ModelRegistry(), directory, ModelHub(env, [], lambda update: None)
    )


def wanted_by(proxy):
    return proxy.control.subscribers(Side.WEB, TOPIC.canonical)


def test_who_is_admitted_is_waited_for_until_they_have_joined(proxy):
    carrier = ProxyCarrier(proxy, patience=0.01)
    asyncio.run(carrier.admit(TOPIC, "callback"))
    assert wanted_by(proxy) == [ADMISSION]
    carrier.joined(TOPIC, "callback", None)
    assert wanted_by(proxy) == ["callback"]
    carrier.left(TOPIC, "callback")
    assert wanted_by(proxy) == []


def test_who_did_not_confirm_is_not_waited_for(proxy):
    carrier = ProxyCarrier(proxy, patience=0.01)
    asyncio.run(carrier.admit(TOPIC, "callback"))
    carrier.left(TOPIC, "callback")
    assert wanted_by(proxy) == []


class RecallingProxy:
    """Stands for a proxy of which only the question matters."""

    def __init__(self, *answers):
        self.answers = answers
        self.asked = []

    def recall(self, topic, after, before, reply):
        self.asked.append((topic, after, before))
        for answer in self.answers:
            asyncio.get_running_loop().call_soon(reply, answer)


AFTER = Position(PublisherId(b"x" * 16), 1, 1)


def test_versions_that_a_reader_missed_come_over_the_fabric():
    update = WebUpdate(TOPIC.canonical, AFTER.next(), "text/plain", b"body", "")
    proxy = RecallingProxy([update], [])
    before = AFTER.next().next()
    found = asyncio.run(ProxyCarrier(proxy, patience=1).recall(TOPIC, AFTER, before))
    assert found == [Recalled(AFTER.next(), "text/plain", b"body", "")]
    assert proxy.asked == [(TOPIC, AFTER, before)]


def test_who_recalls_does_not_wait_for_ever(monkeypatch, proxy):
    monkeypatch.setattr("psph.facades.carrier._RECALL_PATIENCE", 0.01)
    carrier = ProxyCarrier(RecallingProxy(), patience=1)
    assert asyncio.run(carrier.recall(TOPIC, AFTER, None)) == ()
    # One that has not begun answers nobody, or with nothing.
    assert not asyncio.run(ProxyCarrier(proxy, patience=1).recall(TOPIC, AFTER, None))
