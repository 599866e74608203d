"""`psph publish`: tell a hub that a topic changed."""

from __future__ import annotations

import click

from psph.commands import following
from psph.output import print_json


@click.command(short_help="Tell a hub that a topic changed.")
@click.argument("topic")
@click.option("--hub", metavar="URL", help="Hub to ping; all that the topic names when not given.")
@click.option("--json", "as_json", is_flag=True, help="What each hub answered, as JSON.")
def publish(topic: str, hub: str | None, as_json: bool) -> None:
    """Ping the hub of TOPIC, which fetches it and delivers what is new.

    Without --hub the topic is fetched, and every hub it names is pinged for the name it gives
    itself (rel=self).
    """
    following.web_url(topic, "TOPIC")
    if hub is not None:
        following.web_url(hub, "--hub")
    answers = following.run(_publish(topic, hub))
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        click.echo(f"{answer['hub']} took the ping for {answer['topic']} ({answer['status']})")


async def _publish(topic: str, hub: str | None) -> list[dict[str, object]]:
    from push_hub.client.asking import ping
    from push_hub.client.errors import HubRefused
    from push_hub.client.finding import ANYWHERE, client_session, find_hubs

    async with client_session(ANYWHERE, 20.0) as session:
        hubs: tuple[str, ...] = (hub or "",)
        if hub is None:
            found = await find_hubs(session, ANYWHERE, topic)
            topic, hubs = found.topic, found.links.hubs
        answers: list[dict[str, object]] = []
        refusals = []
        for each in hubs:
            try:
                answer = await ping(session, ANYWHERE, each, topic)
                answers.append({"hub": each, "topic": topic, "status": answer.status})
            except HubRefused as refusal:
                refusals.append(str(refusal))
    if refusals:
        raise HubRefused("; ".join(refusals))
    return answers
