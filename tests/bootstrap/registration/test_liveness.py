"""When a peer is believed dead."""

from hypothesis import given
from hypothesis import strategies as st

from bootstrap.registration.liveness import FEWEST, Liveness


def test_out_of_reach_for_long_enough():
    liveness = Liveness(10)
    for now in (0, 4, 8):
        liveness.told("a", False, now)
        assert liveness.dead(now) == []
    assert liveness.dead(9.9) == []
    assert liveness.dead(10) == ["a"]


def test_few_looks_prove_nothing_however_long_ago():
    """The machine may have slept between two looks."""
    liveness = Liveness(10)
    liveness.told("a", False, 0)
    liveness.told("a", False, 10_000)
    assert liveness.dead(10_000) == []


def test_one_that_answers_or_cannot_be_judged_begins_anew():
    for answer in (True, None):
        liveness = Liveness(10)
        for now in range(20):
            liveness.told("a", False, now)
        liveness.told("a", answer, 20)
        assert liveness.dead(20) == []
        liveness.told("a", False, 21)
        assert liveness.dead(30) == []


def test_one_that_left_is_forgotten():
    liveness = Liveness(10)
    for now in range(20):
        liveness.told("a", False, now)
        liveness.told("b", False, now)
    liveness.keep(["b"])
    assert liveness.dead(20) == ["b"]


@given(st.lists(st.sampled_from([True, False, None]), max_size=40), st.integers(1, 10))
def test_dead_means_nothing_but_failures_for_the_whole_time(answers, patience):
    liveness = Liveness(patience)
    for now, answer in enumerate(answers):
        liveness.told("a", answer, now)
    silent = 0
    for answer in reversed(answers):
        if answer is not False:
            break
        silent += 1
    expected = silent >= FEWEST and silent - 1 >= patience
    assert (liveness.dead(len(answers) - 1) == ["a"]) == expected
