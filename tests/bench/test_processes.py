"""What subscribers of the benchmarks check."""

import pytest

from bench.processes import NUMBER, Tally


def message(number, rest=b"body"):
    return number.to_bytes(NUMBER) + rest


@pytest.mark.parametrize("numbers", [[1], [0, 0], [0, 2], [0, 1, 0]])
def test_a_number_that_is_not_the_next_ends_the_benchmark(numbers):
    tally = Tally()
    *good, wrong = numbers
    for number in good:
        tally.take(message(number))
    with pytest.raises(SystemExit, match="came instead of"):
        tally.take(message(wrong))


def test_another_content_ends_the_benchmark():
    tally = Tally(body=b"body")
    tally.take(message(0))
    with pytest.raises(SystemExit, match="another content"):
        tally.take(message(1, b"bodY"))


def test_it_is_complete_when_the_last_one_has_come():
    tally = Tally()
    tally.expect(2)
    tally.take(message(0))
    assert not tally.complete.is_set()
    tally.take(message(1))
    assert tally.complete.is_set()
    assert tally.last > 0
