"""Look-ups a second, cached and not, beside plain dnspython asking the same name server.

A look-up is what serves one host: two SRV records and a TXT record, three questions when nothing
is known. The reference asks the same three with dnspython's own resolver, and its own cache; it
reads nothing of what the records say.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import dns.asyncresolver
import dns.resolver

from bench.processes import Process, serve
from bootstrap import ANNOUNCEMENT, PROXY, RENDEZVOUS, Announcement, Resolver, Server
from bootstrap.lookup import EDNS_PAYLOAD
from bootstrap.server.serving import NameServer
from bootstrap.server.settings import ServerSettings, ZoneSettings

ZONE = "bench.test"
HOSTS = 48
CACHED = 500
"""Look-ups of one round, over hosts that all are known."""
ROUNDS = 25
"""Many short ones, of which the best counts: ours and the reference take turns, so that both meet
the machine in its quiet moments."""
AT_ONCE = 16
KEY = bytes(range(32))

NOTES = [
    "a look-up: the PSPHs, rendezvous servers and keys of a host, records at the host itself",
    "reference: dnspython's asynchronous resolver asks for the same three record sets, with its"
    " LRUCache when cached and no cache when not, and reads nothing of their content",
    "dnspython_edns: the same with EDNS, which ours always uses and dnspython does not by itself",
    "uncached: one after another, the three questions of a look-up at the same time",
    f"uncached_{AT_ONCE}: so many look-ups at the same time",
    "the name server is the embedded one, in a process of its own",
]


def run(
    hosts: int = HOSTS, cached: int = CACHED, rounds: int = ROUNDS
) -> dict[str, dict[str, float] | list[str]]:
    """Look-ups a second of what serves a domain, cached and not, beside plain dnspython."""
    with ExitStack() as stack:
        server = Server("127.0.0.1", Process(stack, "bench.resolve", str(hosts)).ask("port"))
        best: dict[str, float] = {}
        for _ in range(rounds):
            names = [f"h{number}.{ZONE}" for number in range(hosts)]
            for name, rate in asyncio.run(_round(server, names, cached)).items():
                best[name] = max(best.get(name, 0.0), rate)
    many = f"uncached_{AT_ONCE}"
    return {
        "ratios": {
            **{
                f"{name}_vs_dnspython": round(best[name] / best[f"dnspython_{name}"], 2)
                for name in ("cached", "uncached", many)
            },
            "uncached_vs_dnspython_edns": round(
                best["uncached"] / best["dnspython_edns_uncached"], 2
            ),
        },
        "figures": {
            **{f"lookups_per_s_{name}": round(rate) for name, rate in best.items()},
            "us_per_cached_lookup": round(1e6 / best["cached"], 1),
        },
        "notes": NOTES,
    }


async def _round(server: Server, names: list[str], cached: int) -> dict[str, float]:
    """Look-ups a second of each kind; ours and the reference's follow each other closely."""
    repeated = [names[number % len(names)] for number in range(cached)]
    remembering, forgetful = _plain(server, caching=True), _plain(server)
    edns = _plain(server, edns=True)
    await _plain_rate(names, remembering, 1)
    many = f"uncached_{AT_ONCE}"
    async with Resolver([server]) as ours, Resolver([server]) as other:
        return {
            "uncached": await _rate(names, ours, 1),
            "dnspython_uncached": await _plain_rate(names, forgetful, 1),
            "dnspython_edns_uncached": await _plain_rate(names, edns, 1),
            many: await _rate(names, other, AT_ONCE),
            f"dnspython_{many}": await _plain_rate(names, forgetful, AT_ONCE),
            "cached": await _rate(repeated, ours, 1),
            "dnspython_cached": await _plain_rate(repeated, remembering, 1),
        }


async def _rate(names: list[str], resolver: Resolver, at_once: int) -> float:
    async def some(start: int) -> None:
        for name in names[start::at_once]:
            found = await resolver.find(name)
            assert found.keys == (KEY,)
            assert len(found.proxies) == len(found.rendezvous) == 1

    start = time.perf_counter()
    await asyncio.gather(*map(some, range(at_once)))
    return len(names) / (time.perf_counter() - start)


def _plain(
    server: Server, *, caching: bool = False, edns: bool = False
) -> dns.asyncresolver.Resolver:
    plain = dns.asyncresolver.Resolver(configure=False)
    plain.nameservers = [server.host]
    plain.port = server.port
    plain.cache = dns.resolver.LRUCache() if caching else None
    if edns:
        plain.use_edns(0, 0, EDNS_PAYLOAD)
    return plain


async def _plain_rate(names: list[str], plain: dns.asyncresolver.Resolver, at_once: int) -> float:
    async def some(start: int) -> None:
        for name in names[start::at_once]:
            answers = await asyncio.gather(
                plain.resolve(f"{PROXY}.{name}.", "SRV"),
                plain.resolve(f"{RENDEZVOUS}.{name}.", "SRV"),
                plain.resolve(f"{ANNOUNCEMENT}.{name}.", "TXT"),
            )
            assert all(len(answer) == 1 for answer in answers)

    start = time.perf_counter()
    await asyncio.gather(*map(some, range(at_once)))
    return len(names) / (time.perf_counter() - start)


async def _serve(hosts: int) -> None:
    """The process of the name server."""
    announcement = Announcement.of_zone(ZONE, KEY).rdata()
    records = ["@ 300 IN SOA ns hostmaster 1 3600 600 86400 60", "@ 300 IN NS ns"]
    records += ["ns 300 IN A 127.0.0.1", "hub 300 IN A 127.0.0.1"]
    for number in range(hosts):
        records += [
            f"{PROXY}.h{number} 300 IN SRV 10 5 8080 hub",
            f"{RENDEZVOUS}.h{number} 300 IN SRV 0 0 7000 hub",
            f"{ANNOUNCEMENT}.h{number} 300 IN TXT {announcement}",
        ]
    settings = ServerSettings(zones=(ZoneSettings(ZONE, tuple(records)),))
    with TemporaryDirectory(prefix="psph-bench-resolve-") as directory:
        async with NameServer(settings, Path(directory) / "zones.sqlite") as server:

            async def port(_: object) -> int:
                return server.address[1]

            await serve({"port": port})


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
