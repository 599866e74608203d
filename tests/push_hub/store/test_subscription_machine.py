"""The life of subscriptions in the store, whatever happens in whatever order, against a model.

The model knows no states: only what a subscriber can see. It is written from websub.md, not from
the table in `lifecycle`.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from identifiers import identify
from push_hub.lifecycle import Event, State
from push_hub.requests import SubscriptionRequest
from push_hub.store import SqliteStore
from push_hub.store.records import Caps, DeliveryResult, NewUpdate, Origin, Outcome

CAPS = Caps(1_000, 1_000, 1_000)
KEYS = [
    ("http://a.example/feed", "http://reader.example/1"),
    ("http://A.example/feed", "http://reader.example/1"),  # another spelling of the same topic
]
MODES = ["subscribe", "unsubscribe"]


@dataclass
class Known:
    """What the world outside knows of a (topic, callback)."""

    live: bool = False
    secret: bytes | None = None
    expires: float = 0.0
    asked: int | None = None
    """The request that its callback is being asked about."""


class Subscriptions(RuleBasedStateMachine):
    requests = Bundle("requests")

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.store = self.do(SqliteStore.open(Path(self.directory.name) / "hub.sqlite"))
        self.now = 1000.0
        self.known = {key: Known() for key in KEYS}
        self.owed = {key: [] for key in KEYS}
        self.number = 0

    def do(self, work):
        return self.loop.run_until_complete(work)

    def teardown(self):
        self.do(self.store.close())
        self.loop.close()
        self.directory.cleanup()

    def subscription(self, key):
        return self.do(self.store.subscription(*key))

    @rule(
        target=requests,
        key=st.sampled_from(KEYS),
        mode=st.sampled_from(MODES),
        secret=st.sampled_from([None, b"one", b"two"]),
        lease=st.sampled_from([10, 100]),
    )
    def request(self, key, mode, secret, lease):
        wish = SubscriptionRequest(
            mode, identify(key[0]), key[1], secret=secret if mode == "subscribe" else None
        )
        verification = self.do(self.store.request(wish, lease, CAPS, self.now))
        # The later request takes the place of an earlier one, and changes nothing else.
        self.known[key].asked = verification.id
        return key, verification

    @rule(which=requests, yes=st.booleans())
    def one_callback_answers(self, which, yes):
        """Perhaps too late: another request may have been made."""
        if yes:
            self.confirm(which)
        else:
            self.refuse(which)

    def confirm(self, which):
        key, verification = which
        known = self.known[key]
        done = self.do(self.store.confirm(verification, self.now))
        if known.asked != verification.id:
            assert done is None
            return
        known.asked = None
        if verification.mode == "subscribe":
            known.live, known.secret = True, verification.secret
            known.expires = self.now + verification.lease_seconds
        elif known.live:
            self.end(key)

    def refuse(self, which):
        key, verification = which
        self.do(self.store.refuse(verification, "no", self.now))
        if self.known[key].asked == verification.id:
            self.known[key].asked = None

    @rule(yes=st.booleans())
    def all_callbacks_answer(self, yes):
        for verification in self.do(self.store.pending()):
            which = (verification.topic, verification.callback), verification
            if self.known[which[0]].asked is None:
                # Dropped by the operator meanwhile: the answer comes to nothing.
                assert self.do(self.store.confirm(verification, self.now)) is None
            elif yes:
                self.confirm(which)
            else:
                self.refuse(which)

    @rule(seconds=st.sampled_from([1.0, 20.0, 200.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.do(self.store.expire(self.now))
        for key, known in self.known.items():
            if known.live and known.expires <= self.now:
                self.end(key)

    @rule(key=st.sampled_from(KEYS))
    def callback_is_gone(self, key):
        found = self.subscription(key)
        if found is not None and self.known[key].live:
            self.do(self.store.end(found.id, Event.GONE, "gone", self.now))
            self.end(key)

    @rule(key=st.sampled_from(KEYS))
    def operator_drops_it(self, key):
        found = self.subscription(key)
        if found is None:
            return
        ended = self.do(self.store.end(found.id, Event.DENIED, "dropped", self.now))
        if ended is not None:
            # Also what is being asked comes to nothing: it takes a new request.
            self.end(key)
            self.known[key].asked = None

    @rule(topic=st.just("http://a.example/feed"))
    def update(self, topic):
        self.number += 1
        record = self.do(self.store.ensure_topic(identify(topic), CAPS, self.now))
        body = b"%d" % self.number
        new = NewUpdate(record.id, Origin.PUBLISHED, "text/plain", body, body, "trace")
        recorded = self.do(
            self.store.record(new, self.now, max_waiting=1000, history=100, history_bytes=1 << 20)
        )
        receiving = [
            key for key in KEYS
            if identify(key[0]).canonical == identify(topic).canonical and self.known[key].live
        ]  # fmt: skip
        assert recorded.deliveries == len(receiving)
        for key in receiving:
            self.owed[key].append(recorded.update.seq)

    @rule(fails=st.booleans())
    def deliver(self, fails):
        claimed = self.do(self.store.exchange([], self.now, 100, {}, 100)).claimed
        results = []
        for each in claimed:
            key = (each.topic, each.callback)
            # The oldest that is owed, to nobody but who is subscribed, under the current secret.
            assert self.known[key].live
            assert each.secret == self.known[key].secret
            assert each.seq == self.owed[key][0]
            if not fails:
                self.owed[key].pop(0)
            outcome = Outcome.RETRY if fails else Outcome.DELIVERED
            results.append(DeliveryResult(each, outcome, self.now, "no", self.now))
        self.do(self.store.exchange(results, self.now, 0, {}, 0))

    def end(self, key):
        known = self.known[key]
        known.live, known.secret = False, None
        self.owed[key].clear()

    @rule()
    def process_dies(self):
        self.do(self.store.close())
        self.store = self.do(SqliteStore.open(Path(self.directory.name) / "hub.sqlite"))
        self.do(self.store.recover())

    @invariant()
    def the_store_knows_what_the_world_knows(self):
        waiting = {(each.topic, each.callback): each for each in self.do(self.store.pending())}
        kept = {(each.topic, each.callback): each for each in self.do(self.store.subscriptions())}
        for key, known in self.known.items():
            found = kept.get(key)
            live = found is not None and found.state in (State.ACTIVE, State.RENEWING)
            assert live == known.live, (key, found)
            if live:
                assert (found.secret, found.expires_at) == (known.secret, known.expires)
            if found is not None:
                assert found.waiting == len(self.owed[key])
                if found.state in (State.PENDING, State.RENEWING):
                    assert key in waiting, f"{found.state} for ever"
                ended = not live and found.state is not State.PENDING
                assert (found.ended_at is not None) == ended
            if known.asked is not None:
                assert waiting[key].id == known.asked


TestSubscriptions = Subscriptions.TestCase
TestSubscriptions.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
