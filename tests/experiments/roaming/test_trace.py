"""What is read off a departure/arrival trace."""

from __future__ import annotations

from experiments.roaming.trace import Trace
from psirp_sim.runtime.durations import SECOND


def trace(received, **times):
    """Ten messages, one a second; received in seconds."""
    return Trace(
        published=[number * SECOND for number in range(10)],
        received=[(round(at * SECOND), number) for at, number in received],
        **{name: round(at * SECOND) for name, at in times.items()},
    )


def test_figures_of_a_trace():
    found = trace(
        # 1 comes again out of the buffer, 4 never, 6 twice; 5 is late, 7 is live.
        [
            *((0.1, 0), (1.1, 1), (6.5, 1), (6.5, 2), (6.5, 3), (8.6, 5)),
            *((8.6, 6), (8.7, 6), (8.8, 7), (8.9, 8), (9.1, 9)),
        ],
        move_out=1.5,
        moved_out=1.9,
        move_in=5.5,
        moved_in=8.5,
    )
    assert found.lost == found.lost_before_move_in == 1
    assert found.published_away == 4
    assert found.duplicated == 1
    assert found.duplicated_by_move_out == 1
    assert found.out_of_order == 0
    assert found.move_out_ms == 400
    assert found.moved_in_ms == 3_000
    assert found.delay_ms == 3_300
    assert found.silence_ms == 2_100  # from 6.5 to 8.6
    assert found.diagonal_ms == 3_300


def test_what_was_published_before_the_call_is_not_live():
    found = trace([(5.6, 5), (9.0, 6), (9.5, 8)], move_in=5.5)
    assert found.delay_ms == 4_000


def test_what_never_comes_live_has_no_delay():
    assert trace([(5.6, 1)], move_in=5.5).delay_ms is None
    assert trace([], move_in=5.5).moved_in_ms is None


def test_a_trace_that_touches_the_diagonal_and_leaves_it_is_not_on_it():
    """6 is live, 7 waits behind a gap for 3.5 s, and 8 comes with it, live."""
    found = trace([(5.6, 5), (6.2, 6), (10.5, 7), (10.5, 8), (10.6, 9)], move_in=5.5)
    assert found.delay_ms == 700
    assert found.silence_ms == 4_300
    assert found.diagonal_ms == 5_100
    late = trace([(5.6, 5), (6.2, 6), (10.5, 7)], move_in=5.5)
    assert late.diagonal_ms is None


def test_what_comes_again_is_not_late():
    found = trace([(5.6, 5), (6.2, 6), (7.2, 7), (9.5, 6), (9.6, 9)], move_in=5.5)
    assert found.diagonal_ms == found.delay_ms == 700


def test_without_a_message_there_is_no_silence_to_measure():
    found = trace([(1.0, 1)], move_in=5.5)
    assert found.silence_ms is found.diagonal_ms is None


def test_order_is_that_of_the_first_copies():
    assert trace([(1, 0), (2, 2), (3, 1), (4, 0), (5, 3)]).out_of_order == 1
