"""What one has said: in order, and once more where another PSPH may not know of it."""

from __future__ import annotations

import pytest

from psph.chat.message import BadMessage
from psph.chat.outbox import AGAIN, LATELY, MOST_WAITING, Outbox

BOB = "bob@site-b.test"
ONE, TWO = "http://one", "http://two"


def sent(outbox, *texts):
    for text in texts:
        outbox.add(BOB, text)


def take_all(outbox, hub, now):
    """What a PSPH gets."""
    texts = []
    while outbox:
        texts.append(outbox.first.text)
        outbox.taken(outbox.first, hub, now)
    return texts


def test_another_psph_is_sent_what_was_taken_lately_and_the_same_one_is_not():
    outbox = Outbox()
    sent(outbox, "old")
    take_all(outbox, ONE, 0)
    sent(outbox, "1", "2")
    take_all(outbox, ONE, LATELY)
    sent(outbox, "3")
    outbox.at(ONE, LATELY + 1)
    assert take_all(outbox, ONE, LATELY + 1) == ["3"]
    sent(outbox, "4")
    outbox.at(TWO, LATELY + 2)
    assert outbox.first.again
    assert take_all(outbox, TWO, LATELY + 2) == ["1", "2", "3", "4"]
    outbox.at(TWO, LATELY + 3)
    assert not outbox
    outbox.at(ONE, LATELY + 3)
    assert len(outbox) == 4, "that which died may be back without them"


def test_it_keeps_its_id():
    outbox = Outbox()
    sent(outbox, "1")
    identity = outbox.first.id
    take_all(outbox, ONE, 0)
    outbox.at(TWO, 1)
    assert outbox.first.id == identity


def test_what_is_acknowledged_is_that_message_wherever_it_stands_then():
    outbox = Outbox()
    sent(outbox, "1")
    take_all(outbox, ONE, 0)
    sent(outbox, "2", "3")
    under_way = outbox.first
    outbox.at(TWO, 1)
    outbox.taken(under_way, ONE, 1)
    assert take_all(outbox, TWO, 2) == ["1", "3"]


def test_what_was_refused_is_not_sent_again():
    outbox = Outbox()
    sent(outbox, "1")
    outbox.refused(outbox.first)
    outbox.at(TWO, 1)
    assert not outbox


def test_it_is_bounded():
    outbox = Outbox()
    sent(outbox, *map(str, range(MOST_WAITING)))
    with pytest.raises(BadMessage, match="wait already"):
        outbox.add(BOB, "one more")
    take_all(outbox, ONE, 0)
    outbox.at(TWO, 1)
    assert take_all(outbox, TWO, 1) == [str(n) for n in range(MOST_WAITING)][-AGAIN:]
