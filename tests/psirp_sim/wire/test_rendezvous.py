"""Messages of the rendezvous: what is just within the bounds is taken, what is not is refused."""

from __future__ import annotations

import msgspec
import pytest

from psirp_sim.wire import sealing
from psirp_sim.wire.data import MalformedPacket
from psirp_sim.wire.rendezvous import (
    MOST_ENTRIES,
    MOST_KEYS,
    MOST_LISTENERS,
    MOST_SERVERS,
    Access,
    Code,
    LeaseAsk,
    LeaseVote,
    Listener,
    Match,
    Matches,
    MatchesTaken,
    Open,
    Refresh,
    Register,
    Registered,
    Registration,
    Side,
    Subscribed,
    SubscribedTaken,
    SummaryAsk,
    SummaryIs,
    View,
    ViewChange,
    ViewIs,
)
from psirp_sim.wire.sealing import FabricKeys
from tests.psirp_sim.wire.examples import FILTER, LISTENERS, PUBLIC, RID, SID, VIEW

KEYS = FabricKeys("a secret")
PLAIN = Registration(7, Side.SUBSCRIBER, SID, RID)
SIGNATURE = bytes(64)


def received(kind, *fields):
    """What a receiver makes of these fields under the right key."""
    data = bytes((kind.type,)) + msgspec.msgpack.encode(fields)
    return KEYS.open(data[:1] + sealing._mac(KEYS._keys[0], data) + data[1:])


def register(*entries):
    """A `Register` that the receiver has read, with entries as they stand on the wire."""
    return received(Register, "rv1", "a", 3, [], list(entries))


@pytest.mark.parametrize(
    "message",
    [
        Register("rv1", "a", 3, [FILTER] * 64, [PLAIN] * MOST_ENTRIES),
        Registered("a", 3, "rv1", 9, []),
        Registered("a", 3, "rv1", 9, [(7, True, code) for code in Code] * 4),
        Matches("a", 3, "rv1", 9, [Match(SID, RID, 4, 1, LISTENERS[:1] * MOST_LISTENERS)]),
        Matches("a", 3, "rv1", 9, [Match(SID, RID, 4, 1, ())] * MOST_ENTRIES),
        MatchesTaken("rv1", "a", 3, 9, [(SID, RID, 1)] * MOST_ENTRIES),
        Subscribed("a", 3, 5, SID, RID, None, LISTENERS[:1] * MOST_LISTENERS),
        Subscribed("a", 3, 5, SID, RID, (bytes(16), 0, 2**63), LISTENERS),
        ViewIs("rv2", "rv1", View(1, ("rv1",) * MOST_SERVERS, ("rv2",) * MOST_SERVERS)),
        SummaryIs("a", "rv1", 9, 1, bytes(170_000)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_there_and_back_at_the_bounds(message):
    assert KEYS.open(KEYS.seal(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Register("", "a", 3, [], [PLAIN]),
        Register("rv1", "a", -1, [], [PLAIN]),
        Register("rv1", "a", 2**63, [], [PLAIN]),
        Register("rv1", "a", 3, [FILTER] * 65, [PLAIN]),
        Register("rv1", "a", 3, [], []),
        Register("rv1", "a", 3, [], [PLAIN] * (MOST_ENTRIES + 1)),
        Registered("a", 3, "rv1", 9, [(7, True, Code.OK)] * (MOST_ENTRIES + 1)),
        Registered("a", 3, "rv1", 9, [(7, True, max(Code) + 1)]),
        Registered("a", 3, "rv1", 9, [(7, True, -1)]),
        Registered("a", 3, "rv1", 9, [(7, Code.OK)]),
        Registered("a", 3, "rv1", 9, [(7, 1, Code.OK)]),
        Refresh("rv1", "a", 3, [], 1, bytes(7)),
        Refresh("rv1", "a", 3, [], 1, bytes(9)),
        Matches("a", 3, "rv1", 9, []),
        Matches("a", 3, "rv1", 9, [Match(SID, RID, 4, 1, ())] * (MOST_ENTRIES + 1)),
        Matches("a", 3, "rv1", 9, [Match(SID, b"", 4, 1, ())]),
        Matches("a", 3, "rv1", 9, [Match(SID, RID, 4, 1, LISTENERS[:1] * (MOST_LISTENERS + 1))]),
        Matches("a", 3, "rv1", 9, [Match(SID, RID, 4, 1, (Listener("", 1, 1),))]),
        MatchesTaken("rv1", "a", 3, 9, [(SID, RID, 1)] * (MOST_ENTRIES + 1)),
        MatchesTaken("rv1", "a", 3, 9, [(SID, b"", 1)]),
        Subscribed("a", 3, 5, SID, RID, None, ()),
        Subscribed("a", 3, 5, SID, RID, None, LISTENERS[:1] * (MOST_LISTENERS + 1)),
        Subscribed("a", 3, 5, SID, b"", None, LISTENERS),
        Subscribed("a", 3, 5, SID, RID, (bytes(15), 1, 2), LISTENERS),
        Subscribed("a", 3, 5, SID, RID, (bytes(16), 1, -2), LISTENERS),
        SubscribedTaken("a", 3, 5, SID, RID, None),
        LeaseAsk("rv1", "a", 3, [], 1, VIEW, SID, b""),
        LeaseAsk("rv1", "a", 3, [], 1, None, SID, RID),
        LeaseAsk("rv1", "a", 3, [], 1, VIEW, SID, RID, 0, True, "b" * 64),
        LeaseVote("a", 3, "rv1", 1, SID, RID, max(Code) + 1, 0, VIEW),
        ViewIs("rv2", "rv1", View(1, ("rv1",) * (MOST_SERVERS + 1))),
        ViewIs("rv2", "rv1", View(1, (), ("rv1",) * (MOST_SERVERS + 1))),
        ViewIs("rv2", "rv1", View(1, ("",))),
        ViewChange("rv2", "", True),
        SummaryAsk("rv1", "a", [], None),
        SummaryAsk("rv1", "a", [], (1,)),
        SummaryIs("a", "rv1", 9, 1, bytes(170_001)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_fields_out_of_bounds_are_refused(message):
    with pytest.raises(MalformedPacket):
        KEYS.open(KEYS.seal(message))


def test_what_has_a_default_may_be_left_off():
    assert register([7, 2, SID, RID]).entries == [PLAIN]
    assert register([7, 1, SID, b"", True, []]).entries[0].access == Access()
    assert register([7, 1, SID, b"", True, [0]]).entries[0].access == Access(publish=Open.ANYONE)
    assert received(ViewIs, "rv2", "rv1", [1, ["rv1"]]).view == View(1, ("rv1",), ())


@pytest.mark.parametrize("length", [1, 16, 31, 33, 64])
def test_a_rid_is_whole_or_empty(length):
    with pytest.raises(MalformedPacket):
        register([7, 1, SID, bytes(length)])
    if length < 33:
        with pytest.raises(MalformedPacket, match="a rendezvous id has 32 bytes"):
            register([7, 1, SID, bytes(length)])
    with pytest.raises(ValueError, match="a rendezvous id has 32 bytes"):
        Registration(7, Side.PUBLISHER, SID, bytes(length))


@pytest.mark.parametrize(
    "entry",
    [
        [],
        [7, 1, SID],
        [-1, 1, SID, RID],
        [7, 0, SID, RID],
        [7, 3, SID, RID],
        [7, "PUBLISHER", SID, RID],
        [7, 1, SID[1:], RID],
        [7, 1, SID.hex(), RID],
        [7, 1, SID, None],
        [7, 1, SID, RID, 1],
        [7, 1, SID, RID, True, None, None],
        [7, 1, SID, RID, True, None, False, [PUBLIC]],
        [7, 1, SID, RID, True, None, False, [PUBLIC[1:], SIGNATURE]],
        [7, 1, SID, RID, True, None, False, [PUBLIC, SIGNATURE[1:]]],
        [7, 1, SID, RID, True, None, False, None, None],
    ],
)
def test_a_registration_out_of_bounds_is_refused(entry):
    with pytest.raises(MalformedPacket):
        register(entry)


OTHER = bytes(32)


@pytest.mark.parametrize(
    ("written", "who"),
    [
        (0, Open.ANYONE),
        (1, Open.FABRIC),
        ([PUBLIC], (PUBLIC,)),
        ([PUBLIC, OTHER], (PUBLIC, OTHER)),
        ([OTHER] * MOST_KEYS, (OTHER,) * MOST_KEYS),
    ],
)
def test_either_side_of_a_scope_is_open_or_for_named_keys(written, who):
    for access, expected in (
        ([written, 0], Access(publish=who, subscribe=Open.ANYONE)),
        ([1, written], Access(publish=Open.FABRIC, subscribe=who)),
    ):
        read = register([7, 1, SID, b"", True, access]).entries[0].access
        assert read == expected
        for side in (read.publish, read.subscribe):
            assert isinstance(side, Open | tuple)
        assert msgspec.msgpack.encode(read) == msgspec.msgpack.encode(access)


@pytest.mark.parametrize(
    "who",
    [
        *(2, -1, None, True, 1.0, "FABRIC", PUBLIC, [], [1], [PUBLIC, 0]),
        *([PUBLIC[1:]], [PUBLIC + b"\0"], [PUBLIC.hex()], [OTHER] * (MOST_KEYS + 1)),
    ],
)
def test_access_rules_of_any_other_form_are_refused(who):
    for access in ([who, 0], [0, who]):
        with pytest.raises(MalformedPacket):
            register([7, 1, SID, b"", True, access])
    with pytest.raises(MalformedPacket):
        register([7, 1, SID, b"", True, [0, 0, 0]])


def test_views_have_an_order():
    """First the number, then the members, name by name."""
    views = [
        View(1, ("b",)),
        View(2, ("a", "b")),
        View(2, ("a", "c")),
        View(2, ("b",)),
        View(10, ()),
    ]
    assert views == sorted(views)
    assert len(set(views)) == 5
