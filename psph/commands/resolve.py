"""`psph resolve`: what serves a domain, as DNS says, and whether its records are true."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from identifiers import InvalidTopic
from identifiers.errors import shown
from psph.errors import PsphError
from psph.output import print_json, print_table

if TYPE_CHECKING:
    from bootstrap import Found, Server, Source

COLUMNS = ("what", "found", "priority", "weight", "addresses", "record", "name server", "seconds")


@click.command(short_help="Find what serves a domain, and check its records.")
@click.argument("name", metavar="DOMAIN|URL")
@click.option("--dns", metavar="HOST:PORT", help="Ask this name server, not the system's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def resolve(name: str, dns: str | None, as_json: bool) -> int:
    """Find the PSPHs, rendezvous servers and keys of DOMAIN, or of the host of a topic URL.

    Shows where each was found (at the host itself, or further up to its zone), which name server
    said so, and for how many seconds that holds. Records that are wrong or lie are refused and
    listed. Exits with 1 when nothing is found, or when no announcement of the zone is true.
    """
    from bootstrap import BootstrapError, NothingFound, Server

    try:
        servers = [Server.parse(dns)] if dns is not None else []
    except BootstrapError as error:
        raise click.UsageError(f"--dns: {error}") from None
    try:
        found = asyncio.run(_find(name, servers))
    except InvalidTopic as error:
        raise click.UsageError(f"{shown(name)}: {error}") from None
    except NothingFound as error:
        raise PsphError("; ".join([str(error), *error.problems])) from None
    except BootstrapError as error:
        raise PsphError(str(error)) from None
    if as_json:
        print_json(_as_json(name, found))
    else:
        _show(found)
    return 1 if found.refused else 0


async def _find(name: str, servers: list[Server]) -> Found:
    from bootstrap import Resolver

    async with Resolver(servers) as resolver:
        return await resolver.find(name)


def _show(found: Found) -> None:
    title = f"{found.host}, zone {found.zone}, scope id {found.sid}"
    print_table(title, COLUMNS, list(_rows(found)))
    for problem in found.problems:
        click.echo(f"problem: {problem}")
    if found.refused:
        click.echo("refused: no announcement of this zone is true, so trust nothing it publishes")


def _rows(found: Found) -> Iterator[tuple[object, ...]]:
    from bootstrap import ANNOUNCEMENT, PROXY, RENDEZVOUS

    for service, what, endpoints in (
        (PROXY, "PSPH", found.proxies),
        (RENDEZVOUS, "rendezvous", found.rendezvous),
    ):
        for each in endpoints:
            addresses = " ".join(each.addresses) or None
            origin = _origin(found, service)
            yield what, str(each), each.priority, each.weight, addresses, *origin
    origin = _origin(found, ANNOUNCEMENT)
    for key in found.keys:
        yield "key", base64.b64encode(key).decode(), None, None, None, *origin
    if found.id_version is not None:
        yield "ids", found.id_version, None, None, None, *origin


def _origin(found: Found, service: str) -> tuple[object, ...]:
    source = _source(found, service)
    if source is None:
        return None, None, None
    record = f"{source.kind} {source.owner}"
    return record, source.nameserver, int(source.ttl)


def _source(found: Found, service: str) -> Source | None:
    from bootstrap import ANNOUNCEMENT

    # By the kind, too: the name of the TXT record begins those of the SRV records.
    kind = "TXT" if service == ANNOUNCEMENT else "SRV"
    for each in found.sources:
        if each.kind == kind and each.owner.startswith(f"{service}."):
            return each
    return None


def _as_json(name: str, found: Found) -> dict[str, object]:
    return {
        "asked": name,
        "host": found.host,
        "zone": found.zone,
        "sid": str(found.sid),
        "id_version": found.id_version,
        "keys": [base64.b64encode(key).decode() for key in found.keys],
        "proxies": [asdict(each) for each in found.proxies],
        "rendezvous": [asdict(each) for each in found.rendezvous],
        "nameserver": found.nameserver,
        "sources": [asdict(each) for each in found.sources],
        "expires_in": round(found.expires_in, 3),
        "stale": found.stale,
        "refused": found.refused,
        "problems": list(found.problems),
    }
