"""Who may use the page: names of this machine without a token, everybody with it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from demo.guarding import guard, is_loopback
from demo.guarding import headers as every_answer
from tests.push_hub.world import served

TOKEN = "a token"


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.0.2.1", False), ("localhost.example", False),
        ("127.0.0.1.example", False), ("", False), ("[", False),
    ],
)  # fmt: skip
def test_names_of_this_machine(host, ours):
    assert is_loopback(host) is ours


async def _ok(request):
    return web.Response(text="ok")


def ask(token, method="GET", path="/", **headers):
    """The status, and the headers, of the answer."""

    async def main():
        app = web.Application(middlewares=[guard(token)])
        app.on_response_prepare.append(every_answer(["http://127.0.0.1:41001"]))
        app.router.add_route("*", "/{path:.*}", _ok)
        async with served(app) as url, aiohttp.ClientSession() as session:
            if headers.get("Origin") == "its own":
                headers["Origin"] = url
            async with session.request(
                method, url + path, headers=headers, allow_redirects=False
            ) as answer:
                return answer.status, answer.headers

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200),
        ("stranger.example", 421), ("127.0.0.1.example:80", 421), ("[::1", 421), ("a:b:c", 421),
    ],
)  # fmt: skip
def test_without_a_token_only_our_own_names_are_answered(host, status):
    assert ask(None, Host=host)[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_other_pages_change_nothing(method, token):
    shown = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(token, method, Origin="http://stranger.example", **shown)[0] == 403
    assert ask(token, method, Origin="null", **shown)[0] == 403
    assert ask(token, method, Origin="its own", **shown)[0] == 200
    assert ask(token, method, **shown)[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer another"}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Cookie": "psph-80=another"}, 401),
    ],
)
def test_with_a_token_everybody_shows_it(headers, status):
    assert ask(TOKEN, path="/api/world", **headers)[0] == status


def test_the_cookie_is_the_token_and_the_address_forgets_it():
    status, headers = ask("secret", path="/?token=secret")
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"]
    name, _, rest = cookie.partition("=")
    assert rest.startswith("secret;")
    assert "HttpOnly" in rest
    assert "SameSite=Strict" in rest
    assert name.startswith("psph-")
    assert ask("secret", Host="phone.example:8000", Cookie="psph-8000=secret")[0] == 200
    assert ask("secret", Host="phone.example:8001", Cookie="psph-8000=secret")[0] == 401


def test_every_answer_says_what_may_be_loaded():
    for answer in (ask(None), ask(TOKEN), ask(None, Host="stranger.example")):
        policy = answer[1]["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert policy.endswith("connect-src 'self' http://127.0.0.1:41001")
