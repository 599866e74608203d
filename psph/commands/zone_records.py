"""`psph zone-records`: the records of a zone, to be pasted where nobody may send updates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from psph.errors import PsphError
from psph.output import print_json

if TYPE_CHECKING:
    from bootstrap.registration.settings import Target


@click.command(short_help="Print the records of a zone, to be pasted into its zone file.")
@click.argument("domain")
@click.option("--target", metavar="HOST:PORT", required=True, help="Where the PSPH serves /hub.")
@click.option(
    "--rendezvous", metavar="HOST:PORT", multiple=True, help="A rendezvous server; repeatable."
)
@click.option(
    "--key-file",
    "key_files",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="A key of the zone (see zone-key), or its public half; two while one is replaced.",
)
@click.option("--ttl", type=click.IntRange(1, 604_800), default=300, show_default=True)
@click.option("--priority", type=click.IntRange(0, 65_535), default=0, show_default=True)
@click.option("--weight", type=click.IntRange(0, 65_535), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a zone file.")
def zone_records(
    domain: str,
    target: str,
    rendezvous: tuple[str, ...],
    key_files: tuple[Path, ...],
    ttl: int,
    priority: int,
    weight: int,
    as_json: bool,
) -> None:
    """Print what DNS has to say for DOMAIN, in the syntax of zone files.

    For zones whose name server takes no updates from us. `psph resolve DOMAIN` checks the records
    once they are in place.
    """
    from bootstrap.errors import BootstrapError
    from bootstrap.records import ANNOUNCEMENT, MAX_KEYS, PROXY, RENDEZVOUS, Announcement
    from bootstrap.registration import zone_key
    from bootstrap.registration.planning import service_rdata
    from bootstrap.registration.settings import host_name
    from identifiers import zone_of_host

    try:
        host = host_name(domain)
    except ValueError as error:
        raise click.UsageError(f"DOMAIN: {error}") from None
    services = [(PROXY, _target("--target", target))]
    services += [(RENDEZVOUS, _target("--rendezvous", each)) for each in rendezvous]
    try:
        keys = {zone_key.load(each).public for each in key_files}
    except BootstrapError as error:
        raise PsphError(str(error)) from None
    if len(keys) > MAX_KEYS:
        raise click.UsageError(f"--key-file: at most {MAX_KEYS} keys of a zone are believed")
    rows = [
        (f"{prefix}.{host}.", "SRV", service_rdata(priority, weight, each).to_text())
        for prefix, each in dict.fromkeys(services)
    ]
    for key in sorted(keys) if keys else (None,):
        text = Announcement.of_zone(zone_of_host(host), key).rdata()
        rows.append((f"{ANNOUNCEMENT}.{host}.", "TXT", text))
    if as_json:
        print_json(
            [{"name": name, "ttl": ttl, "type": kind, "value": value} for name, kind, value in rows]
        )
        return
    click.echo(f"; for the zone file; then check it: psph resolve {host}")
    for name, kind, value in rows:
        click.echo(f"{name} {ttl} IN {kind} {value}")


def _target(option: str, text: str) -> Target:
    from bootstrap.registration.settings import Target
    from psph.configuration.addresses import parse_address

    try:
        return Target(*parse_address(text))
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
