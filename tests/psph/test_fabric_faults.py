"""The admin port of a node with `fabric.faults`: links are cut with the token, and trees shown."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest

from psph import server
from psph.configuration import ConfigurationError, NodeConfiguration, check
from tests.ports import free_ports

KEYS = {"keys": ["a key of the fabric"], "link_seed": "seed", "hello_ms": 50, "exact": False}


def configuration(name, own, other, peer, **fabric):
    link = {"name": other, "address": f"127.0.0.1:{peer}"}
    return check(
        {
            "node": {"name": name, "domain": "a.test", "roles": ["forwarder"], "data": name},
            "fabric": KEYS | {"listen": f"127.0.0.1:{own}", "link": [link]} | fabric,
            "traces": {"recent": 10},
        },
        NodeConfiguration,
        "test",
    )


def run(directory, body, **fabric):
    """A node with faults, or what is asked for, beside an ordinary one."""

    async def main():
        one, two = free_ports(2)
        async with AsyncExitStack() as stack, aiohttp.ClientSession() as session:
            own = configuration("n1", one, "n2", two, **({"faults": True} | fabric))
            address = (await server.start(own, directory, stack)).admin
            await server.start(configuration("n2", two, "n1", one), directory, stack)
            token = (directory / "n1" / "admin-token").read_text().strip()
            await body(session, f"http://{address}", {"Authorization": f"Bearer {token}"})

    asyncio.run(main())


async def _status(session, url):
    async with session.get(f"{url}/fabric/status") as answer:
        return await answer.json()


async def _until_up(session, url, up):
    async with asyncio.timeout(60):
        while (await _status(session, url))["links"][0]["up"] is not up:
            await asyncio.sleep(0.02)


def test_a_link_is_cut_and_mended(tmp_path):
    async def body(session, url, token):
        await _until_up(session, url, True)
        for up in (False, True):
            async with session.post(
                f"{url}/fabric/links/n2", json={"up": up}, headers=token
            ) as answer:
                assert await answer.json() == {"link": "n2", "cut": not up}
            await _until_up(session, url, up)
            assert (await _status(session, url))["traffic"]["n2"]["cut"] is not up

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("path", "body", "known", "status"),
    [
        ("n2", b'{"up": false}', False, 401),
        ("n2", b"", True, 400),
        ("n2", b'{"up": 1}', True, 400),
        ("n2", b'{"up": true, "for": 3}', True, 400),
        ("n3", b'{"up": false}', True, 404),
    ],
)
def test_what_is_refused(tmp_path, path, body, known, status):
    async def refused(session, url, token):
        headers = token if known else {}
        async with session.post(f"{url}/fabric/links/{path}", data=body, headers=headers) as answer:
            assert answer.status == status
        assert not (await _status(session, url))["traffic"]["n2"]["cut"]

    run(tmp_path, refused)


def test_an_ordinary_node_cannot_be_cut(tmp_path):
    async def body(session, url, token):
        async with session.post(
            f"{url}/fabric/links/n2", json={"up": False}, headers=token
        ) as answer:
            assert answer.status == 404
        assert "traffic" not in await _status(session, url)

    run(tmp_path, body, faults=False)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/fabric/tree", 400),
        ("/fabric/tree?topic=nonsense", 400),
        ("/fabric/tree?topic=http://news.a.test/", 404),
        ("/traces/recent", 200),
        ("/traces/recent?after=0", 200),
        ("/traces/recent?after=-1", 400),
        ("/traces/recent?after=x", 400),
        ("/traces/recent?after=" + "9" * 30, 400),
    ],
)
def test_what_is_asked_for_wrongly_is_answered_in_a_line(tmp_path, path, status):
    async def body(session, url, token):
        async with session.get(url + path) as answer:
            assert answer.status == status
            assert (await answer.text()).count("\n") <= 1

    run(tmp_path, body)


def test_ethernet_has_no_faults():
    link = {"name": "n2", "interface": "eth0", "mac": "02:00:00:00:00:01"}
    with pytest.raises(ConfigurationError, match="faults are for nodes whose links are over UDP"):
        check(
            {
                "node": {"name": "n1", "domain": "a.test"},
                "fabric": KEYS | {"link": [link], "faults": True},
            },
            NodeConfiguration,
            "test",
        )
