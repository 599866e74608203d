"""`psph zone-key`: the key of a zone, and the TSIG key that lets a PSPH change its records."""

from __future__ import annotations

from pathlib import Path

import click

from psph.errors import PsphError
from psph.output import print_json, print_table


@click.command(short_help="Make or show the key of a zone, or a TSIG key.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--zone", metavar="DOMAIN", help="Also show the TXT record of this zone.")
@click.option("--tsig", "name", metavar="NAME", help="A TSIG key of this name instead.")
@click.option("--algorithm", metavar="NAME", help="Of the TSIG key; hmac-sha256 unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def zone_key(
    file: Path | None, zone: str | None, name: str | None, algorithm: str | None, as_json: bool
) -> None:
    """Make the zone's Ed25519 key in FILE, or show its public half when FILE is there.

    With --tsig, make a TSIG key and print it, secret included, in the forms that psph and BIND
    want; with FILE keep it there, and print what FILE has when it is there.
    """
    if name is not None:
        if zone is not None:
            raise click.UsageError("--zone is for the key of a zone, --tsig for another")
        _tsig_key(file, name, algorithm, as_json)
    elif file is None:
        raise click.UsageError("Missing argument 'FILE', where the key of the zone is or shall be.")
    elif algorithm is not None:
        raise click.UsageError("--algorithm is for --tsig: the key of a zone is Ed25519.")
    else:
        _zone_key(file, zone, as_json)


def _zone_key(file: Path, zone: str | None, as_json: bool) -> None:
    from bootstrap.errors import BootstrapError
    from bootstrap.records import ANNOUNCEMENT, Announcement
    from bootstrap.registration import zone_key as keys
    from bootstrap.registration.settings import host_name
    from identifiers import zone_of_host

    try:
        domain = None if zone is None else host_name(zone)
    except ValueError as error:
        raise click.UsageError(f"--zone: {error}") from None
    try:
        try:
            key, made = keys.make(file), True
        except FileExistsError:
            key, made = keys.load(file), False
    except BootstrapError as error:
        raise PsphError(str(error)) from None
    shown: dict[str, object] = {"file": str(file), "made": made, "public_key": key.text}
    if domain is not None:
        announcement = Announcement.of_zone(zone_of_host(domain), key.public)
        shown["txt"] = f"{ANNOUNCEMENT}.{domain}. IN TXT {announcement.rdata()}"
    shown["public_pem"] = key.public_pem()
    if as_json:
        print_json(shown)
        return
    rows = [("public key", key.text), ("in the TXT record", f"key={key.text}")]
    if domain is not None:
        rows.append(("record", str(shown["txt"])))
    title = f"{file}: a new key; keep the file, nobody can make it again" if made else str(file)
    print_table(title, ["what", "value"], rows)


def _tsig_key(file: Path | None, name: str, algorithm: str | None, as_json: bool) -> None:
    from bootstrap.errors import BootstrapError
    from bootstrap.registration import tsig

    try:
        tsig.check_name(name)
        if algorithm is not None:
            tsig.check_algorithm(algorithm)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    key = tsig.make(name, algorithm or "hmac-sha256")
    if file is not None:
        try:
            try:
                tsig.save(key, file)
            except FileExistsError:
                key = tsig.load(file)
        except BootstrapError as error:
            raise PsphError(str(error)) from None
        if key.name != name or algorithm not in (None, key.algorithm):
            raise PsphError(
                f"{file} is there and has the key {key.name} ({key.algorithm}): name another file"
            )
    ours = (
        f'tsig_file = "{file}"' if file is not None else _inline(key.name, key.text, key.algorithm)
    )
    if as_json:
        shown = {"name": key.name, "algorithm": key.algorithm, "secret": key.text}
        print_json(shown | {"psph": ours, "bind": key.for_bind()})
        return
    click.echo(f"# for psph, in the table [bootstrap]:\n{ours}\n")
    click.echo(f"# for named.conf, or a file that it includes:\n{key.for_bind()}", nl=False)


def _inline(name: str, secret: str, algorithm: str) -> str:
    return f'tsig = {{ name = "{name}", algorithm = "{algorithm}", secret = "{secret}" }}'
