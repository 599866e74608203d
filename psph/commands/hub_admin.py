"""`psph hub-admin`: look into a running hub, change it, back it up."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import click

from psph import admin_token
from psph.errors import PsphError
from psph.output import print_json, print_table

F = TypeVar("F", bound=Callable[..., Any])

_OPENER = build_opener(ProxyHandler({}))
"""A hub is asked directly: its token goes to nobody else."""

_LISTS = {
    "subscriptions": ("id", "state", "topic", "callback", "waiting", "failures", "last_success_at",
                      "last_failure"),
    "topics": ("id", "topic", "last_ping_at", "last_fetch_at", "last_update_at", "last_error"),
    "queue": ("id", "subscription", "topic", "callback", "position", "attempt", "in_flight",
              "next_due", "last_failure"),
}  # fmt: skip


def _asking(command: F) -> F:
    """Options of a command that asks a running hub."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
        click.option(
            "--data",
            type=click.Path(path_type=Path, file_okay=False),
            required=True,
            help="Directory of the hub's data, where its admin-token is.",
        ),
        click.option(
            "--hub",
            "url",
            metavar="URL",
            default="http://127.0.0.1:8080",
            show_default=True,
            help="Where the hub is reached.",
        ),
    ):
        command = option(command)
    return command


@click.group("hub-admin", short_help="Look into a running hub, change it, back it up.")
def hub_admin() -> None:
    """Look into a running hub, change it, back it up."""


@hub_admin.command("list", short_help="Subscriptions, topics or deliveries.")
@click.argument("what", type=click.Choice(sorted(_LISTS)), default="subscriptions")
@click.option("--topic", metavar="URL", help="Subscriptions of this topic only.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin after this id.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@_asking
def list_(
    what: str, topic: str | None, after: int, limit: int, url: str, data: Path, as_json: bool
) -> None:
    """List subscriptions (the default), topics, or the queue of deliveries, a page at a time."""
    if topic and what != "subscriptions":
        raise click.UsageError("--topic is for subscriptions")
    asked = {"after": after, "limit": limit, **({"topic": topic} if topic else {})}
    found = _ask(url, data, "GET", f"/admin/{what}?{urlencode(asked)}")
    if as_json:
        print_json(found)
        return
    columns = _LISTS[what]
    rows = [[_cell(c, each[c]) for c in columns] for each in found[_key(what)]]
    print_table(what, columns, rows)
    if found["next"] is not None:
        click.echo(f"\nmore: --after {found['next']}")


@hub_admin.command(short_help="Everything about a subscription or a topic.")
@click.argument("which", metavar="ID|TOPIC")
@_asking
def inspect(which: str, url: str, data: Path, as_json: bool) -> None:
    """Show the subscription with this number, or the topic with this URL."""
    if which.isascii() and which.isdigit():
        found = _ask(url, data, "GET", f"/admin/subscriptions/{which}")
    else:
        found = _ask(url, data, "GET", f"/admin/topic?{urlencode({'topic': which})}")
    if as_json:
        print_json(found)
        return
    facts = {key: value for key, value in found.items() if not isinstance(value, list | dict)}
    print_table(which, ["what", "value"], [[key, _cell(key, facts[key])] for key in facts])
    for key, value in found.items():
        if isinstance(value, dict):
            print_table(f"\n{key}", ["what", "value"], [[k, _cell(k, v)] for k, v in value.items()])
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            columns = list(value[0])
            print_table(f"\n{key}", columns, [[_cell(c, row[c]) for c in columns] for row in value])
        elif isinstance(value, list):
            print_table(f"\n{key}", [key], [[each] for each in value])


@hub_admin.command(short_help="End a subscription.")
@click.argument("subscription", type=click.IntRange(min=1))
@click.option("--reason", default="ended by the hub's operator", show_default=True)
@_asking
def drop(subscription: int, reason: str, url: str, data: Path, as_json: bool) -> None:
    """End a subscription. Its callback is told, with the reason."""
    query = urlencode({"reason": reason})
    found = _ask(url, data, "DELETE", f"/admin/subscriptions/{subscription}?{query}")
    if as_json:
        print_json(found)
    else:
        click.echo(f"subscription {subscription} of {found['callback']} is {found['state']}")


@hub_admin.command(short_help="Deliver an update again.")
@click.argument("topic")
@click.option("--position", help="Of the update; the latest when not given.")
@click.option("--subscription", type=click.IntRange(min=1), help="To this one only.")
@_asking
def replay(
    topic: str, position: str | None, subscription: int | None, url: str, data: Path, as_json: bool
) -> None:
    """Deliver an update in the topic's history again, to one subscription or to all.

    It carries the delivery id of the first time: receivers that look at it can tell.
    """
    chosen = {"topic": topic, "position": position, "subscription": subscription}
    query = urlencode({key: value for key, value in chosen.items() if value is not None})
    found = _ask(url, data, "POST", f"/admin/replay?{query}")
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['deliveries']} deliveries queued")


_data = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Directory of the hub's data.",
)


@hub_admin.command(short_help="Back up the database, while the hub runs.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_data
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def backup(file: Path, data: Path, as_json: bool) -> None:
    """Write a back-up of the database to FILE, which must not exist. The hub may run."""
    from push_hub.store.backup import back_up

    _tell(_stored(back_up, data / "hub.sqlite", file), f"{file} holds", as_json)


@hub_admin.command(short_help="Restore the database from a back-up.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_data
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def restore(file: Path, data: Path, as_json: bool) -> None:
    """Put a back-up in the place of the database. The hub must not run.

    The database that was there is kept beside it. Updates are numbered in a new epoch afterwards.
    """
    from push_hub.store.backup import restore as put_back

    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PsphError(f"{data} cannot be made: {error.strerror}") from None
    _tell(_stored(put_back, file, data / "hub.sqlite"), "restored:", as_json)


def _stored(do: Callable[[Path, Path], Any], source: Path, target: Path) -> Any:
    from push_hub.errors import StoreError

    try:
        return do(source, target)
    except StoreError as error:
        raise PsphError(str(error)) from None


def _tell(contents: Any, words: str, as_json: bool) -> None:
    counts = {name: getattr(contents, name) for name in ("topics", "subscriptions", "deliveries")}
    if as_json:
        print_json(counts)
    else:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        click.echo(f"{words} {listed}")


def _ask(url: str, data: Path, method: str, path: str) -> dict[str, Any]:
    """What the hub answers; every failure is one sentence."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise click.UsageError(f"--hub: {url!r} is no http or https URL")
    try:
        token = (data / admin_token.NAME).read_text().strip()
        headers = {"Authorization": f"Bearer {token.encode('ascii').decode()}"}
    except (OSError, UnicodeError) as error:
        raise PsphError(f"{data / admin_token.NAME} has no admin token: {error}") from None
    request = Request(f"{url.rstrip('/')}{path}", method=method, headers=headers)
    try:
        with _OPENER.open(request, timeout=30) as answer:
            found = json.load(answer)
    except HTTPError as error:
        with error:
            text = error.read(500).decode(errors="replace").strip()
        raise PsphError(f"the hub answered {error.code}: {text}") from None
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise PsphError(f"no answer from {url} ({reason}): is the hub running there?") from None
    except ValueError:
        raise PsphError(f"{url} is no hub: its answer is no JSON") from None
    if not isinstance(found, dict):
        raise PsphError(f"{url} is no hub: its answer is not one of a hub")
    return found


def _key(what: str) -> str:
    return "deliveries" if what == "queue" else what


def _cell(name: str, value: object) -> object:
    """Times as people read them."""
    if isinstance(value, float) and name.endswith(("_at", "_due", "_until", "since")):
        return datetime.fromtimestamp(value).isoformat(" ", "seconds")
    return value
