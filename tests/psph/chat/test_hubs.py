"""Which PSPH of their domain a user of chat turns to."""

from __future__ import annotations

import pytest

from bootstrap import NothingFound, Resolver
from psph.chat.hubs import FoundHubs, GivenHubs
from tests.bootstrap.name_servers import embedded
from tests.push_hub.world import run

FIRST, SECOND = "http://127.0.0.1:7001", "http://127.0.0.1:7002"
BASE = (
    "@ 300 IN SOA ns hostmaster 1 3600 600 86400 5",
    "@ 300 IN NS ns",
    "ns 300 IN A 127.0.0.1",
    "psph 300 IN A 127.0.0.1",
)


def srv(priorities, weights):
    return tuple(
        f"_psirp._tcp 300 IN SRV {priority} {weight} {7001 + number} psph"
        for number, (priority, weight) in enumerate(zip(priorities, weights, strict=True))
    )


def test_users_are_spread_and_each_comes_to_the_same_psph_until_it_fails(tmp_path):
    zones = {
        "site-a.test": (*BASE, *srv((0, 0), (1, 3))),
        "site-b.test": (*BASE, *srv((1, 0), (9, 1))),
        "site-c.test": BASE,
    }
    users = [f"user{number}@site-a.test" for number in range(200)]

    async def chosen(resolver):
        return [await FoundHubs(resolver, each).choose() for each in users]

    async def main(server):
        async with Resolver([server.address]) as resolver:
            spread = await chosen(resolver)
            assert 20 <= spread.count(FIRST) <= 80
            assert spread.count(FIRST) + spread.count(SECOND) == len(users)
            async with Resolver([server.address]) as another:
                assert await chosen(another) == spread
            hubs = FoundHubs(resolver, users[0])
            first = await hubs.choose()
            hubs.failed(first)
            assert {await hubs.choose(), first} == {FIRST, SECOND}
            hubs.worked(first)
            assert await hubs.choose() == first
            # The lowest priority, whatever the weights.
            for number in range(20):
                assert await FoundHubs(resolver, f"user{number}@site-b.test").choose() == SECOND
            with pytest.raises(NothingFound):
                await FoundHubs(resolver, "user@site-c.test").choose()

    with embedded(tmp_path, zones) as server:
        run(main(server))


def test_those_that_are_given_are_tried_in_turn():
    async def main():
        hubs = GivenHubs([FIRST, f"{SECOND}/hub"])
        assert await hubs.choose() == FIRST
        hubs.failed(SECOND)
        assert await hubs.choose() == FIRST
        hubs.failed(FIRST)
        assert await hubs.choose() == SECOND
        hubs.failed(SECOND)
        assert await hubs.choose() == FIRST

    run(main())
