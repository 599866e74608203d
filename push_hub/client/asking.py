"""Forms for hubs: subscribe, unsubscribe, publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode, urljoin

import aiohttp

from push_hub.addresses import AddressPolicy
from push_hub.client.errors import HubRefused
from push_hub.client.finding import USER_AGENT
from push_hub.connecting import exact_url, reason_of
from push_hub.errors import AddressRefused

_MAX_REDIRECTS: Final = 3
_MAX_TEXT: Final = 2_000

Form = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a hub said; `text` is one line, cut short."""

    status: int
    text: str
    location: str | None = None


async def ask(
    session: aiohttp.ClientSession, policy: AddressPolicy, hub: str, form: Form
) -> Answer:
    """Send a form once, without following redirects; a HubRefused when there is no answer."""
    body = urlencode(list(form)).encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": USER_AGENT,
        "Accept-Encoding": "identity",
    }
    try:
        target = exact_url(hub)
        policy.check_host(target.host or "")
        async with session.post(
            target, data=body, headers=headers, allow_redirects=False
        ) as answer:
            text = (await answer.content.read(_MAX_TEXT)).decode(errors="replace")
            readable = "".join(c if c.isprintable() else " " for c in text)
            return Answer(
                answer.status,
                " ".join(readable.split())[:200],
                answer.headers.get("Location"),
            )
    except AddressRefused as error:
        raise HubRefused(f"the hub {hub} cannot be used: {error}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise HubRefused(f"the hub {hub} cannot be reached: {reason_of(error)}") from error


async def insist(
    session: aiohttp.ClientSession, policy: AddressPolicy, hub: str, form: Form
) -> Answer:
    """Send a form; anything but success is a HubRefused.

    A hub may send its clients elsewhere with 307 and 308, which keep the form.
    """
    at = hub
    for _ in range(_MAX_REDIRECTS + 1):
        answer = await ask(session, policy, at, form)
        if answer.status in (307, 308) and answer.location:
            at = urljoin(at, answer.location)
            if not at.lower().startswith(("http://", "https://")):
                break
            continue
        if 200 <= answer.status < 300:
            return answer
        said = f": {answer.text}" if answer.text and not answer.text.startswith("<") else ""
        raise HubRefused(f"the hub {at} answered {answer.status}{said}")
    raise HubRefused(f"the hub {hub} redirects without end: ask its operator for its address")


async def ping(
    session: aiohttp.ClientSession, policy: AddressPolicy, hub: str, topic: str
) -> Answer:
    """Tell a hub that a topic changed. hub.url and hub.topic: hubs differ in what they read."""
    form = [("hub.mode", "publish"), ("hub.url", topic), ("hub.topic", topic)]
    return await insist(session, policy, hub, form)
