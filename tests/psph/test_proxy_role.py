"""When a PSPH says that it is ready."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from psph.configuration.rendezvous import RendezvousConfiguration
from psph.roles import proxy as role


class Proxy:
    """Is ready after it was asked a few times; `servers` are those that it reaches."""

    def __init__(self, servers, asks):
        self.asks = asks
        self.node = SimpleNamespace(status=lambda: {"servers": servers})

    @property
    def is_ready(self):
        self.asks -= 1
        return self.asks < 0


def wait(proxy):
    asyncio.run(role._until_ready(proxy, RendezvousConfiguration(writer_lease_s=0.05)))


def test_it_waits_until_an_update_can_cross(caplog):
    proxy = Proxy({"r1": {}}, 5)
    wait(proxy)
    assert proxy.asks == -1
    assert not caplog.records


@pytest.mark.parametrize(
    ("servers", "lacks"),
    [({}, "no rendezvous server is reached"), ({"r1": {}}, "writer leases are not given")],
)
def test_it_does_not_wait_for_ever(servers, lacks, caplog, monkeypatch):
    monkeypatch.setattr(role, "_WITHOUT_SERVERS", 0.02)
    proxy = Proxy(servers, 10**9)
    with caplog.at_level(logging.WARNING):
        wait(proxy)
    (record,) = caplog.records
    assert lacks in record.getMessage()
