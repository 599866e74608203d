"""What a hub does every few seconds: end leases whose time is over, forget what ended long ago."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from push_hub.context import Context
from push_hub.errors import StoreError
from push_hub.interest import Interest
from push_hub.store.records import SubscriptionRecord
from traces import LogEvent

_log = logging.getLogger(__name__)

_SWEEP = 5.0
_NEARLY_FULL = 0.8
_SHORTLY = 60.0
"""Seconds for which a hub that is nearly full remembers what nobody needs."""
_FORGET_AT_ONCE = 500


async def keep_house(
    context: Context, interest: Interest, ended: Callable[[SubscriptionRecord], None]
) -> None:
    """Without end; `ended` hears of every subscription whose lease did."""
    while True:
        try:
            for each in await context.store.expire(context.clock()):
                ended(each)
            await forget(context, interest)
        except StoreError as error:
            _log.error(LogEvent("store.failed", reason=error))
        await asyncio.sleep(_SWEEP)


async def forget(context: Context, interest: Interest) -> None:
    """What ended long ago; not so long ago when the hub is nearly full.

    Anybody can make it remember requests that nobody confirms and topics nobody has.
    """
    settings, store = context.settings, context.store
    kept = await store.statistics()
    full = max(
        kept.topics / settings.max_topics,
        sum(kept.subscriptions.values()) / settings.max_subscriptions,
    )
    before = context.clock() - (settings.remember_ended if full < _NEARLY_FULL else _SHORTLY)
    while await store.forget(before, but_topics=interest.topics()) >= _FORGET_AT_ONCE:
        pass
