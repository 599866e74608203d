"""What became of a ping: the fetch, the news, the deliveries, and when the next attempt at any of
them is due. The hub's page about the topic (`/topics?url=`) tells it.

Only hubs of this program have such a page. `judge` is the rule, without I/O.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any, Final, Self
from urllib.parse import urlencode, urljoin

import aiohttp

from push_hub.addresses import AddressPolicy
from push_hub.client.errors import HubRefused
from push_hub.client.finding import USER_AGENT
from push_hub.connecting import exact_url, reason_of

_BYTES_MAX: Final = 1 << 20
_PAUSE_FIRST_S: Final = 0.05
_PAUSE_LONGEST_S: Final = 0.5
"""Well within the rate at which a hub answers such questions."""
_BUSY_MAX: Final = 5


class PingOutcome(StrEnum):
    """How far the fetch for a ping is."""

    NEWS = "news"
    NOTHING_NEW = "nothing new"
    FAILED = "failed"
    PENDING = "pending"
    """It has not ended."""
    NOT_FETCHED = "not fetched"
    """And will not be: the hub does not know the topic, or has it from elsewhere."""
    UNKNOWN = "unknown"
    """The hub does not say."""


class NoReport(HubRefused):
    """The hub does not say what becomes of a ping."""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """What a hub says about a topic at one moment."""

    now: float
    """The hub's clock, which its other times are of."""
    pings: int
    fetched_pings: int
    result: str
    """`ok`, or why the last fetch failed."""
    failures: int
    next_fetch_at: float | None
    positions: tuple[str, ...]
    """Of the versions in its history, newest first."""
    new_entries: int | None
    delivered: int
    owed: int
    retrying: int
    next_delivery_at: float | None
    watched: str
    """How the hub hears of news, in words."""

    @classmethod
    def read(cls, values: Any) -> Self:
        """From the page's JSON; KeyError, TypeError or ValueError when it is something else."""
        fetch, latest = values["fetch"], values["latest"] or {}
        return cls(
            now=float(values["now"]),
            pings=int(fetch["pings"]),
            fetched_pings=int(fetch["fetched_pings"]),
            result=_readable(fetch["result"]),
            failures=int(fetch["failures_in_a_row"]),
            next_fetch_at=_time(fetch["next_at"]),
            positions=tuple(_readable(each["position"]) for each in values["versions"]),
            new_entries=None if latest.get("new_entries") is None else int(latest["new_entries"]),
            delivered=int(latest.get("delivered", 0)),
            owed=int(latest.get("owed", 0)),
            retrying=int(latest.get("retrying", 0)),
            next_delivery_at=_time(latest.get("next_at")),
            watched="; ".join(_readable(each) for each in values["watched"]),
        )


@dataclass(frozen=True, slots=True)
class PingReport:
    """What became of a ping so far."""

    outcome: PingOutcome
    reason: str | None = None
    """Why it failed, or is not fetched."""
    positions: tuple[str, ...] = ()
    """Of the new versions, oldest first."""
    new_entries: int | None = None
    """Of the last of them; None for what is no feed."""
    delivered: int = 0
    owed: int = 0
    next_s: float | None = None
    """Seconds until the next fetch or, after news, the next attempt to deliver it."""

    @property
    def settled(self) -> bool:
        """Whether nothing more will happen because of this ping."""
        if self.outcome is PingOutcome.NEWS:
            return not self.owed
        return self.outcome is not PingOutcome.PENDING and self.next_s is None


def judge(before: TopicStatus | None, now: TopicStatus, pinged: int) -> PingReport:
    """What the statuses before and after ping number `pinged` say about it."""
    if before is not None and pinged <= before.pings:
        return PingReport(PingOutcome.NOT_FETCHED, now.watched)
    next_fetch_s = None if now.next_fetch_at is None else max(0.0, now.next_fetch_at - now.now)
    if now.fetched_pings < pinged and not now.failures:
        return PingReport(PingOutcome.PENDING)
    known = before.positions[:1] if before is not None else ()
    fresh = tuple(takewhile(lambda each: each not in known, now.positions))
    if not fresh and before is not None and not before.delivered + before.owed:
        # A first version is kept back until a ping says that it is news.
        fresh = known if now.delivered + now.owed else ()
    if fresh:
        resting = now.owed > 0 and now.owed == now.retrying and now.next_delivery_at is not None
        return PingReport(
            PingOutcome.NEWS,
            positions=fresh[::-1],
            new_entries=now.new_entries,
            delivered=now.delivered,
            owed=now.owed,
            next_s=max(0.0, (now.next_delivery_at or 0.0) - now.now) if resting else None,
        )
    if now.result != "ok":
        return PingReport(PingOutcome.FAILED, now.result, next_s=next_fetch_s)
    return PingReport(PingOutcome.NOTHING_NEW, next_s=next_fetch_s)


async def topic_status(
    session: aiohttp.ClientSession, policy: AddressPolicy, hub: str, topic: str
) -> TopicStatus | None:
    """What the hub says about the topic now; None when it does not know it. A NoReport where it
    says nothing of the kind."""
    query = urlencode({"url": topic, "format": "json", "limit": 1})
    try:
        target = exact_url(f"{urljoin(hub, 'topics')}?{query}")
        policy.check_host(target.host or "")
        for _ in range(_BUSY_MAX):
            headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
            async with session.get(target, headers=headers, allow_redirects=False) as answer:
                body = await answer.content.read(_BYTES_MAX)
                while len(body) < _BYTES_MAX and (more := await answer.content.readany()):
                    body += more
            if answer.status != 429:
                break
            await asyncio.sleep(1.0)
        values = json.loads(body)
        if answer.status == 404 and "error" in values:
            return None
        return TopicStatus.read(values)
    except (aiohttp.ClientError, OSError) as error:
        raise HubRefused(f"the hub {hub} cannot be reached: {reason_of(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NoReport(f"the hub {hub} does not say what becomes of a ping") from None


async def await_outcome(
    session: aiohttp.ClientSession,
    policy: AddressPolicy,
    hub: str,
    topic: str,
    before: TopicStatus | None,
    patience_s: float,
) -> PingReport:
    """Wait until a ping that the hub has just answered is settled, or until the next attempt lies
    beyond the patience; `before` is the status from before the ping."""
    deadline, pause, pinged = time.monotonic() + patience_s, _PAUSE_FIRST_S, None
    while True:
        now = await topic_status(session, policy, hub, topic)
        if now is None:
            reason = "the hub does not know the topic: it has no subscriber there"
            return PingReport(PingOutcome.NOT_FETCHED, reason)
        pinged = now.pings if pinged is None else pinged
        report = judge(before, now, pinged)
        left = deadline - time.monotonic()
        if report.settled or (report.next_s or 0.0) >= left:
            return report
        await asyncio.sleep(min(left, max(pause, report.next_s or 0.0)))
        pause = min(2 * pause, _PAUSE_LONGEST_S)


def _time(value: Any) -> float | None:
    return None if value is None else float(value)


def _readable(text: Any) -> str:
    """A stranger's text on one line of a terminal."""
    return "".join(each if each.isprintable() else " " for each in str(text)[:300])
