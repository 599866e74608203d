"""The other hubs of a domain: which are believed, /hubs, and what the page may connect to."""

import asyncio
import string

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub import create_app
from push_hub.siblings import MOST, KnownSiblings, base_url, origin
from tests.push_hub.world import chosen, run, served

TWO = "http://two.site-a.test:8080"


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://Two.site-A.test:8080/", TWO),
        ("HTTPS://hub.example.com", "https://hub.example.com"),
        ("http://127.0.0.1:80/feeds/Here/", "http://127.0.0.1:80/feeds/Here"),
        ("http://_x.example", "http://_x.example"),
    ],
)
def test_well_formed(text, base):
    assert base_url(text) == base


@pytest.mark.parametrize(
    "text",
    [
        "", "hub.example.com", "ftp://hub.example.com", "http://", "http://*", "http://*.example",
        "http://a.example; script-src *", "http://a.example\nX: y",
        "http://a.example 'unsafe-inline'",
        "http://a.example:0", "http://a.example:65536", "http://a.example:", "http://u:p@a.example",
        "http://a.example?x", "http://a.example#x", "http://a.example/,http://b.example",
        "http://a..example", "http://" + "a." * 200 + "example", "http://a.example//x",
        'http://a.example/"><script>', "http://ä.example",
    ],
)  # fmt: skip
def test_malformed(text):
    assert base_url(text) is None


@given(st.text(alphabet=string.printable + "ä\u2028", max_size=40))
def test_nothing_leaves_its_place_in_the_policy(text):
    for each in (text, f"http://{text}", f"http://a.test:{text}", f"http://a.test/{text}"):
        found = base_url(each)
        assert found is None or not set(found) & set(" \t\r\n;,'\"<>*&\u2028")


def test_origins_are_as_browsers_name_them():
    assert origin("http://a.test:80/x") == "http://a.test"
    assert origin("https://a.test:443") == "https://a.test"
    assert origin("https://a.test:80/x/y") == "https://a.test:80"
    assert origin(TWO) == TWO


def test_failures_give_the_last_known():
    said = [TWO, "http://one.test/"]

    async def ask():
        if not said:
            raise OSError("no name server")
        return list(said)

    async def main():
        known = KnownSiblings(ask, "http://one.test")
        assert await known.bases() == (TWO,)
        said.extend(f"http://more.test:{port}" for port in range(1, 20))
        said.insert(0, "nonsense")
        assert (await known.bases())[:2] == (TWO, "http://more.test:1")
        before = await known.bases()
        assert len(before) == MOST
        said.clear()
        assert await known.bases() == before
        assert await KnownSiblings(None, "http://one.test").bases() == ()

    run(main())


def test_nobody_waits_long_for_them():
    async def ask():
        await asyncio.Event().wait()

    async def main():
        known = KnownSiblings(ask, "http://one.test")
        async with asyncio.timeout(30):
            assert await known.bases() == ()
            # And the next not at all.
            assert await known.bases() == ()

    run(main())


def test_hubs_and_the_policy_of_the_page(tmp_path):
    others = [TWO]

    async def ask():
        return others

    async def get(client, url, **headers):
        async with client.get(url, headers=headers) as answer:
            kind = answer.content_type
            return answer, await (answer.json() if "json" in kind else answer.text())

    async def main():
        app = create_app(chosen(), tmp_path, siblings=ask)
        async with served(app) as url, aiohttp.ClientSession() as client:
            answer, hubs = await get(client, f"{url}/hubs")
            assert hubs == {"hubs": [chosen().public_url, TWO]}
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
            answer, text = await get(client, f"{url}/")
            assert f"connect-src 'self' {TWO};" in answer.headers["Content-Security-Policy"]
            assert f'data-hubs="{TWO}"' in text
            etag = answer.headers["ETag"]
            again, _ = await get(client, f"{url}/", **{"If-None-Match": etag})
            assert again.status == 304
            # Elsewhere the policy is as narrow as before.
            for path in ("/topics", "/pages/watch.js", "/hubs"):
                answer, _ = await get(client, url + path)
                assert "connect-src 'self';" in answer.headers["Content-Security-Policy"]
            find = f"{url}/find?url=http://127.0.0.1:1/"
            evil = "http://evil.site-a.test"
            for site, sender, status, reader in (
                ("same-site", TWO, 200, TWO), ("cross-site", TWO, 200, TWO), (None, TWO, 200, TWO),
                ("cross-site", "null", 403, None), ("same-site", evil, 403, None),
                (None, evil, 403, None), ("cross-site", None, 403, None),
                ("same-origin", None, 200, None), ("same-origin", url, 200, None),
                (None, None, 200, None),
            ):  # fmt: skip
                headers = {"Sec-Fetch-Site": site, "Origin": sender}
                answer, _ = await get(
                    client, find, **{name: value for name, value in headers.items() if value}
                )
                allowed = answer.headers.get("Access-Control-Allow-Origin")
                assert (answer.status, allowed) == (status, reader), headers
            others[:] = ["http://three.test/a/", "http://three.test/b"]
            # The records of one that died are taken back: its pages may ask all the same.
            assert (await get(client, f"{url}/hubs"))[1]["hubs"][1:] == [
                "http://three.test/a", "http://three.test/b",
            ]  # fmt: skip
            assert (await get(client, find, Origin=TWO))[0].status == 200
            changed, text = await get(client, f"{url}/", **{"If-None-Match": etag})
            assert changed.status == 200
            assert 'data-hubs="http://three.test/a http://three.test/b"' in text
            policy = changed.headers["Content-Security-Policy"]
            assert "connect-src 'self' http://three.test;" in policy

    run(main())


def test_a_hub_without_siblings(tmp_path):
    async def main():
        async with (
            served(create_app(chosen(), tmp_path)) as url,
            aiohttp.ClientSession() as client,
        ):
            async with client.get(f"{url}/hubs") as answer:
                assert await answer.json() == {"hubs": [chosen().public_url]}
            async with client.get(f"{url}/") as answer:
                assert 'data-hubs=""' in await answer.text()

    run(main())
