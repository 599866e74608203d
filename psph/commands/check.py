"""`psph check`: does WebSub work for a topic, and what has to change if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from psph.commands import following
from psph.output import print_json, print_table

if TYPE_CHECKING:
    from push_hub.client.checks import Finding


@click.command(short_help="Check what a site says about its hub, and what to change.")
@click.argument("url")
@click.option("--ping", is_flag=True, help="Also ping the hub, as the site would after a change.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(url: str, ping: bool, as_json: bool) -> int:
    """Look at URL as a hub and its subscribers would, and say what to change.

    Checks that it can be fetched, redirects, content type, validators, rel=hub, rel=self, and
    whether the hub can be reached and what it answers. Exits with 1 when something must change.
    """
    from push_hub.client import checks

    following.web_url(url, "URL")
    findings = following.run(_check(url, ping))
    if as_json:
        print_json(checks.as_json(url, findings))
    else:
        rows = [(each.check, each.verdict, each.seen, each.change) for each in findings]
        print_table(url, ["check", "verdict", "seen", "change"], rows)
    return 1 if checks.must_change(findings) else 0


async def _check(url: str, ping: bool) -> list[Finding]:
    from push_hub.client.checking import check as look
    from push_hub.client.finding import ANYWHERE, client_session

    async with client_session(ANYWHERE, 20.0) as session:
        return await look(session, ANYWHERE, url, pinging=ping)
