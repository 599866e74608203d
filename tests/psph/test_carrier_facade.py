"""The proxy as its hub sees it: whom it admits, and how long a topic is wanted for their sake."""

from __future__ import annotations

import asyncio

import pytest

from identifiers import identify
from psph.facades.carrier import ADMISSION, ProxyCarrier
from psph.proxy.control import Side
from psph.proxy.model import ModelDirectory, ModelHub, ModelRegistry
from psph.proxy.proxy import Proxy
from psph.proxy.settings import ProxySettings
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
