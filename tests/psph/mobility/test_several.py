"""Several messages in one body: to a session, and between proxies."""

from __future__ import annotations

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mobility.messages import Fetch, State, encode, read
from psph.mobility.several import MOST, ONE, SEVERAL, bundled, unbundled
from tests.psph.mobility.test_moves import places, run


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=MOST))
def test_what_is_bundled_comes_out_again(packets):
    assert unbundled(*bundled(packets)) == packets


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_refused(body):
    assert unbundled(body, ONE) == [body]
    try:
        found = unbundled(body, SEVERAL)
    except ValueError:
        return
    assert len(found) <= MOST


def test_too_many_are_refused():
    with pytest.raises(ValueError, match="17 messages are too many"):
        unbundled(*bundled([b"x"] * 17))


def test_a_proxy_answers_all_that_another_asks_in_one_request(tmp_path):
    async def main():
        async with places(tmp_path, 1) as (a,), aiohttp.ClientSession() as session:

            def fetch(call):
                who = {"secret": bytes(32), "epoch": 1, "nonce": 1}
                return encode(Fetch(**who, call=call, proxy=a.url, stay=1))

            async def post(body, media_type):
                headers = {"Content-Type": media_type}
                url = f"{a.url}/mobility/relay"
                async with session.post(url, data=body, headers=headers) as answer:
                    return answer.status, answer.content_type, await answer.read()

            body, media_type = bundled([fetch(1), fetch(2), fetch(3)])
            status, kind, content = await post(body, media_type)
            assert status == 200
            answers = [read(each) for each in unbundled(content, kind)]
            assert [each.call for each in answers] == [1, 2, 3]
            assert {each.state for each in answers} == {State.UNKNOWN}
            status, kind, content = await post(fetch(4), ONE)
            assert (status, kind) == (200, ONE)
            assert read(content).call == 4
            assert (await post(b"\xff", SEVERAL))[0] == 400
            assert (await post(bundled([fetch(5), b"nonsense"])[0], SEVERAL))[0] == 400
            assert not a.proxy.routes._relays

    run(main)
