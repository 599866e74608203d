"""Recursive subscriptions, the side that asks: topics of zones that other proxies answer for.

For every zone there is one publication on its channel: the whole set of topics wanted of it, with a
lease and the item where answers are looked for. It goes out anew whenever the set changes and every
third of the lease; a proxy of the zone that comes later is given the latest one by the fabric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from identifiers import PublisherId, Topic, ZoneChannel, zone_channel
from psirp_sim.client import Client
from psirp_sim.publications.delivery import Subscription
from psirp_sim.publications.errors import NotPublished
from psirp_sim.publications.events import Event, Update
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psph.proxy.gathering import Soon
from psph.proxy.messages import Answer, MalformedMessage, Requests, encode, read_answers
from psph.proxy.settings import ProxySettings

Answered = Callable[[str, Answer | None], None]
MOST_ANSWERING = 16
"""Proxies of one zone whose answers are kept."""


@dataclass(slots=True, eq=False)
class Asked:
    """What is asked of one zone."""

    zone: str
    channel: ZoneChannel
    reply: bytes
    topics: dict[str, int] = field(default_factory=dict)
    """With the numbers of their requests."""
    requests: int = 0
    """How many were numbered."""
    answers: dict[PublisherId, dict[str, Answer]] = field(default_factory=dict)
    """By the proxy that answered: all it said last."""
    subscription: Subscription | None = None
    soon: Soon = field(init=False)
    """To say it, again or for the first time."""
    said_nothing: bool = False
    """Whether the last set was empty."""


class Asking:
    """All zones."""

    def __init__(
        self,
        env: Environment,
        settings: ProxySettings,
        client: Client,
        counters: Counter[str],
        answered: Answered,
    ) -> None:
        """`answered` is called with a topic whose answer is another than before; None when there
        is none any more."""
        self._env = env
        self._settings = settings
        self._client = client
        self._counters = counters
        self._answered = answered
        self._zones: dict[str, Asked] = {}

    def add(self, topic: Topic) -> bool:
        """Ask for a topic until it is removed; whether its zone has a channel to ask on."""
        asked = self._zones.get(topic.zone) or self._open(topic.zone)
        if asked is None:
            return False
        if topic.canonical in asked.topics:
            return True
        if len(asked.topics) >= self._settings.most_requested:
            self._counters["requests_left_out"] += 1
            return False
        asked.requests += 1
        asked.topics[topic.canonical] = asked.requests
        self._publish_soon(asked, self._settings.gather)
        return True

    def remove(self, topic: Topic) -> None:
        """Ask for it no longer."""
        asked = self._zones.get(topic.zone)
        if asked is None or topic.canonical not in asked.topics:
            return
        del asked.topics[topic.canonical]
        # The empty set releases everything at once; the lease would do it in time.
        self._publish_soon(asked, self._settings.gather)

    def answer(self, topic: Topic) -> Answer | None:
        """What was answered; where several have, the one who publishes it."""
        asked = self._zones.get(topic.zone)
        return None if asked is None else _best(asked, topic.canonical)

    def _open(self, zone: str) -> Asked | None:
        channel = zone_channel(zone)
        if channel is None:
            return None
        asked = self._zones[zone] = Asked(zone, channel, self._env.random.randbytes(32))
        asked.soon = Soon(self._env, partial(self._publish_on, asked))
        asked.subscription = self._client.subscribe(
            channel.sid.raw,
            asked.reply,
            lambda event: self._heard(asked, event),
            name="answers",
        )
        return asked

    def _close(self, zone: str, asked: Asked) -> None:
        del self._zones[zone]
        if asked.subscription is not None:
            self._client.unsubscribe(asked.subscription)
        self._client.withdraw(asked.channel.sid.raw, asked.channel.rid.raw)

    def _publish_soon(self, asked: Asked, delay: int) -> None:
        asked.soon.within(delay)

    def _publish_on(self, asked: Asked) -> None:
        if not asked.topics and asked.said_nothing:
            self._close(asked.zone, asked)
        elif self._publish(asked):
            # An offer that ends cannot begin again at once, so the channel stays for a while.
            asked.said_nothing = not asked.topics
            self._publish_soon(asked, self._settings.request_lease // 3)
        else:
            self._publish_soon(asked, self._settings.retry)

    def _publish(self, asked: Asked) -> bool:
        lease = self._settings.request_lease / SECOND
        requests = Requests(asked.reply.hex(), lease, asked.topics)
        try:
            self._client.publish(
                asked.channel.sid.raw, asked.channel.rid.raw, encode(requests), {"kind": "requests"}
            )
        except NotPublished as error:
            # Still being withdrawn, perhaps; the set is as large as it may be.
            self._env.log("requests.not_published", reason=error)
            return False
        self._counters["requests_sent"] += 1
        return True

    def _heard(self, asked: Asked, event: Event) -> None:
        if not isinstance(event, Update):
            return
        try:
            said = read_answers(event.content).answers
        except MalformedMessage:
            self._counters["malformed_answers"] += 1
            return
        before = {topic: _best(asked, topic) for topic in asked.topics}
        asked.answers.pop(event.publisher, None)  # the latest comes last
        asked.answers[event.publisher] = {
            topic: answer
            for topic, answer in said.items()
            if bool(answer.publisher) != bool(answer.refused)
        }
        if len(asked.answers) > MOST_ANSWERING:
            del asked.answers[next(iter(asked.answers))]
        for topic, earlier in before.items():
            if _best(asked, topic) != earlier:
                self._answered(topic, _best(asked, topic))


def _best(asked: Asked, topic: str) -> Answer | None:
    """Of several who say that they publish it, the last: those before may be gone."""
    said = [each[topic] for each in reversed(asked.answers.values()) if topic in each]
    found = [answer for answer in said if answer.asked == asked.topics.get(topic)]
    return max(found, key=lambda answer: bool(answer.publisher), default=None)
