"""`psph ids`: the names of topics in the fabric, as JSON."""

from typing import TypedDict

import click

from identifiers import InvalidTopic, identify, zone_channel
from identifiers.errors import shown
from psph.output import print_json


class Ids(TypedDict):
    """An id pair as it is printed."""

    sid: str
    rid: str


class Row(TypedDict):
    """What is printed for a topic, in this order."""

    topic: str
    canonical: str
    zone: str
    sid: str
    rid: str
    channel: Ids | None


@click.command(short_help="Print the ids of topics as JSON.")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
def ids(topics: tuple[str, ...]) -> None:
    """Print the canonical form, zone and ids of each TOPIC as a JSON list.

    A topic is a URL (http://example.com/feed, mqtt://broker.example.com/a/b) or a JID
    (xmpp:alice@example.com). A single "-" reads topics from standard input, one per line.

    "channel" holds the ids under which the whole zone can be followed; addresses, single labels
    and public suffixes have none.
    """
    wanted = list(topics)
    if wanted == ["-"]:
        # Bytes that are not UTF-8 come out as the shell's arguments do, and are refused like them.
        with click.open_file("-", encoding="utf-8", errors="surrogateescape") as lines:
            wanted = [topic for line in lines if (topic := line.rstrip("\n"))]
    rows = [_row(topic) for topic in wanted]
    print_json(rows)


def _row(topic: str) -> Row:
    try:
        found = identify(topic)
    except InvalidTopic as refusal:
        raise click.ClickException(f"{shown(topic)}: {refusal}") from None
    channel = zone_channel(found.zone)
    return {
        "topic": topic,
        "canonical": found.canonical,
        "zone": found.zone,
        "sid": str(found.sid),
        "rid": str(found.rid),
        "channel": channel and {"sid": str(channel.sid), "rid": str(channel.rid)},
    }
