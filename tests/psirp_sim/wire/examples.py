"""An example of every sealed message, and of every form its fields can take."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from psirp_sim.rendezvous.access import sign
from psirp_sim.wire.control import (
    Fragment,
    Hello,
    LinkState,
    ReportedLink,
    Route,
    Routes,
    RoutesTaken,
    Summary,
    TreeReply,
    TreeRequest,
    Wanted,
)
from psirp_sim.wire.message import WireFilter
from psirp_sim.wire.publications import Latest, Report, tag_of
from psirp_sim.wire.rendezvous import (
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
    Refreshed,
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
from psirp_sim.zfilters import ZFilter

FILTER = WireFilter.of(ZFilter.bloom(256, 3, 1 << 255 | 5))

CONTROL = [
    Hello("a", "to-b", 3, ("b", "to-a", 7), 10**18, (5, 6), b"12345678", "1-2026-10-22", True),
    Hello("a", "to-b", 3, None, 0, None, bytes(8), ""),
    LinkState("a", 1, 2, ["forwarder"], [ReportedLink("x", "b", "y", 4)], 1500),
    Summary("", "m", [("a", 1, 2, 3), ("b", 3, 4, 5)]),
    Wanted(["a", "b"]),
    Fragment(b"abcdefgh", 1, 3, b"piece"),
    Routes("a", "m", 1, 2, [Route("m", ["topology"], [FILTER], [FILTER])]),
    RoutesTaken("a", "m", 1, 2),
    TreeRequest(bytes(16), "a", "a", ["b", "c"], ("m", 1, 2)),
    TreeReply("a", bytes(16), "m", 1, 2, [FILTER], ["c"]),
]

SID, RID = bytes(range(32)), bytes(range(32, 64))
SECRET = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
PUBLIC = SECRET.public_key().public_bytes_raw()
EPOCH = 1_790_000_000_000
"""Of client "a"."""
KEYED = Access(publish=(PUBLIC,), subscribe=Open.ANYONE)
HELD = [
    sign(Registration(1, Side.PUBLISHER, SID, b"", access=KEYED), "a", EPOCH, SECRET),
    sign(Registration(300, Side.PUBLISHER, SID, RID), "a", EPOCH, SECRET),
    Registration(301, Side.SUBSCRIBER, SID, RID, guest=True),
    Registration(302, Side.SUBSCRIBER, bytes(32), b""),
    Registration(303, Side.PUBLISHER, bytes(32), b"", access=Access()),
]
"""What server "rv1" holds of client "a"."""
DIGEST = bytes.fromhex("ad97917d247b9e2a")
"""Of these."""
LISTENERS = (Listener("b", EPOCH + 1, 7), Listener("c", EPOCH + 2, 2**63 - 1))
VIEW = View(3, ("rv1", "rv2", "rv3"), ("rv1", "rv2"))
BITS = bytes.fromhex(
    "007b14ae47e17a843f0700000000000000160000000000000010000000000000000a00000000000000"
    "a200bc06819648047c8240105e2c109147a49001"
)
"""A small filter: the witnesses, the item <SID, RID>, and the whole scope whose id is zeros."""

RENDEZVOUS = [
    Register("rv1", "a", EPOCH, [FILTER], HELD),
    Register("rv1", "a", EPOCH, [], [Registration(304, Side.PUBLISHER, SID, RID, present=False)]),
    Registered("a", EPOCH, "rv1", 9, [(1, True, Code.OK), (304, False, Code.NOT_ALLOWED)]),
    Refresh("rv1", "a", EPOCH, [FILTER], len(HELD), DIGEST),
    Refreshed("a", EPOCH, "rv1", 9, True),
    Matches("a", EPOCH, "rv1", 9, [Match(SID, RID, 4, 12, LISTENERS), Match(SID, SID, 4, 13, ())]),
    MatchesTaken("rv1", "a", EPOCH, 9, [(SID, RID, 12), (SID, SID, 13)]),
    Subscribed("a", EPOCH, 5, SID, RID, (bytes(range(16)), 1, 2**64 - 1), LISTENERS),
    Subscribed("a", EPOCH, 5, SID, RID, None, LISTENERS[:1], ended=True),
    SubscribedTaken("a", EPOCH, 5, SID, RID, LISTENERS[0]),
    LeaseAsk("rv1", "a", EPOCH, [FILTER], 5, VIEW, SID, RID),
    LeaseAsk("rv1", "a", EPOCH, [], 6, View(0, ()), SID, RID, 17, True, "b"),
    LeaseVote("a", EPOCH, "rv1", 5, SID, RID, Code.OK, 17, VIEW),
    LeaseVote("a", EPOCH, "rv1", 5, SID, RID, Code.HELD, 17, VIEW, "b", 9_500),
    ViewIs("rv2", "rv1", VIEW, answer=True),
    ViewChange("rv2", "rv1", False),
    SummaryAsk("rv1", "a", [FILTER], (9, 4)),
    SummaryIs("a", "rv1", 9, 5, BITS),
    SummaryIs("a", "rv1", 9, 5, b""),
]

PUBLISHER = bytes(range(16))
LARGE = 2**64 - 1
PUBLICATIONS = [
    Latest("a", EPOCH, SID, RID, PUBLISHER, 3, 17, 1_040, 2_300, 25),
    Latest("a", EPOCH, SID, RID, PUBLISHER, LARGE, 1, 0, 0),
    Report(
        *("a", "b", EPOCH + 1, SID, RID, tag_of(SID, RID, PUBLISHER, 3), 2_298, 2_290, 1_030),
        versions=[(1_031, 1_033), (1_036, 1_036)],
        units=[(1_030, 8, 15), (1_034, 0, 0), (1_034, 131_071, 131_071)],
    ),
    Report("a", "b", EPOCH + 1, SID, RID, bytes(16), 0, 0, LARGE, [], []),
]

EXAMPLES = [*CONTROL, *RENDEZVOUS, *PUBLICATIONS]
