"""The life of a subscription: the table holds what its paragraph promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from push_hub.lifecycle import RECEIVING, TRANSITIONS, Event, State, follow

ENDED = {State.EXPIRED, State.DENIED, State.UNSUBSCRIBED}
STRANGE = [
    Event.SUBSCRIBE_REQUESTED,
    Event.SUBSCRIBE_REFUSED,
    Event.UNSUBSCRIBE_REQUESTED,
    Event.UNSUBSCRIBE_REFUSED,
]
CONFIRMED = {Event.SUBSCRIBE_CONFIRMED}


def lives():
    return st.lists(st.sampled_from(list(Event)), max_size=40)


def states(events):
    state = State.NONE
    yield None, state
    for event in events:
        state = follow(state, event) or state
        yield event, state


def test_every_state_has_a_row():
    assert set(TRANSITIONS) == set(State)


@given(lives())
def test_nothing_is_received_that_was_never_confirmed(events):
    confirmed = False
    for event, state in states(events):
        confirmed = confirmed or event in CONFIRMED
        if state in RECEIVING:
            assert confirmed


@given(lives(), st.sampled_from(STRANGE))
def test_what_a_stranger_can_cause_never_ends_what_works(events, strange):
    *_, (_, state) = states(events)
    if state in RECEIVING:
        assert follow(state, strange) in RECEIVING | {None}


@given(lives())
def test_an_ended_subscription_receives_only_after_a_request_and_its_confirmation(events):
    since: list[Event] | None = None
    for event, state in states(events):
        if state in ENDED:
            since = []
        elif since is not None:
            since.append(event)
            if state in RECEIVING:
                asked = since.index(Event.SUBSCRIBE_REQUESTED)
                assert Event.SUBSCRIBE_CONFIRMED in since[asked:]


@pytest.mark.parametrize("state", sorted(ENDED))
def test_every_end_is_a_beginning(state):
    assert follow(state, Event.SUBSCRIBE_REQUESTED) is State.PENDING


def test_a_failed_renewal_leaves_the_subscription_active():
    assert follow(State.RENEWING, Event.SUBSCRIBE_REFUSED) is State.ACTIVE


@pytest.mark.parametrize("state", [State.ACTIVE, State.RENEWING])
def test_a_lease_that_ends_and_a_callback_that_is_gone_receive_nothing_more(state):
    assert follow(state, Event.LEASE_ENDED) not in RECEIVING
    assert follow(state, Event.GONE) not in RECEIVING
