"""`psph publish`: tell a hub that a topic changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from psph.commands import following
from psph.output import print_json

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from push_hub.client.ping_report import PingReport


@click.command(short_help="Tell a hub that a topic changed.")
@click.argument("topic")
@click.option("--hub", metavar="URL", help="Hub to ping; all that the topic names when not given.")
@click.option("--json", "as_json", is_flag=True, help="What each hub answered, as JSON.")
@click.option("--wait", is_flag=True, help="Report the fetch, what was new, and the deliveries.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="With --wait, how long at most.",
)
@click.pass_context
def publish(
    context: click.Context, topic: str, hub: str | None, as_json: bool, wait: bool, timeout: float
) -> None:
    """Ping the hub of TOPIC, which fetches it and delivers what is new.

    Without --hub the topic is fetched, and every hub it names is pinged for the name it gives
    itself (rel=self). With --wait the command ends when nothing more will happen, or says when the
    next attempt is due; it exits with 1 when a hub did not fetch the topic, or does not say.
    """
    following.web_url(topic, "TOPIC")
    if hub is not None:
        following.web_url(hub, "--hub")
    answers = following.run(_publish(topic, hub, timeout if wait else None))
    if as_json:
        print_json([{**answer, **_fields(report)} for answer, report in answers])
    else:
        for answer, report in answers:
            click.echo(f"{answer['hub']} took the ping for {answer['topic']} ({answer['status']})")
            for line in _lines(report):
                click.echo(f"  {line}")
    if any(report and report.outcome not in ("news", "nothing new") for _, report in answers):
        context.exit(1)


async def _publish(
    topic: str, hub: str | None, patience_s: float | None
) -> list[tuple[dict[str, object], PingReport | None]]:
    from push_hub.client.errors import HubRefused
    from push_hub.client.finding import ANYWHERE, client_session, find_hubs

    async with client_session(ANYWHERE, 20.0) as session:
        hubs: tuple[str, ...] = (hub or "",)
        if hub is None:
            found = await find_hubs(session, ANYWHERE, topic)
            topic, hubs = found.topic, found.links.hubs
        answers = []
        refusals = []
        for each in hubs:
            try:
                status, report = await _ping(session, each, topic, patience_s)
                answers.append(({"hub": each, "topic": topic, "status": status}, report))
            except HubRefused as refusal:
                refusals.append(str(refusal))
    if refusals:
        raise HubRefused("; ".join(refusals))
    return answers


async def _ping(
    session: ClientSession, hub: str, topic: str, patience_s: float | None
) -> tuple[int, PingReport | None]:
    """Ping one hub: its answer and, where that is waited for, what became of the ping."""
    from push_hub.client.asking import ping
    from push_hub.client.finding import ANYWHERE
    from push_hub.client.ping_report import (
        NoReport,
        PingOutcome,
        PingReport,
        await_outcome,
        topic_status,
    )

    if patience_s is None:
        return (await ping(session, ANYWHERE, hub, topic)).status, None
    try:
        before = await topic_status(session, ANYWHERE, hub, topic)
    except NoReport as refusal:
        status = (await ping(session, ANYWHERE, hub, topic)).status
        return status, PingReport(PingOutcome.UNKNOWN, str(refusal))
    status = (await ping(session, ANYWHERE, hub, topic)).status
    return status, await await_outcome(session, ANYWHERE, hub, topic, before, patience_s)


def _fields(report: PingReport | None) -> dict[str, object]:
    return {} if report is None else {"report": asdict(report)}


def _lines(report: PingReport | None) -> list[str]:
    """The report for people."""
    if report is None:
        return []
    later = None if report.next_s is None else f"in {report.next_s:.0f} s"
    if report.outcome == "news":
        noun = "entry" if report.new_entries == 1 else "entries"
        entries = "" if report.new_entries is None else f", {report.new_entries} new {noun}"
        owed = f", {report.owed} owed" if report.owed else ""
        again = f", next attempt {later}" if later else ""
        return [
            f"fetched: new version {', '.join(report.positions)}{entries}",
            f"deliveries: {report.delivered} done{owed}{again}",
        ]
    if report.outcome == "nothing new":
        because = "; a cache may have answered: the hub fetches it again "
        return [f"fetched: nothing new{because + later if later else ''}"]
    if report.outcome == "failed":
        again = f"the hub tries again {later}" if later else "given up until the next ping"
        return [f"fetch failed: {report.reason}; {again}"]
    if report.outcome == "pending":
        return ["the fetch has not ended: ask again with a longer --timeout"]
    return [f"{report.outcome}: {report.reason}"]
