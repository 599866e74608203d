"""Links people know by name. Each value says where it is from; docs/simulator.md repeats it."""

from __future__ import annotations

from dataclasses import dataclass

from psirp_sim.runtime.durations import MICROSECOND, MILLISECOND, SECOND
from psirp_sim.runtime.simulator.profiles import (
    Constant,
    GilbertElliott,
    Independent,
    LinkProfile,
    LinkRetransmission,
    Uniform,
)


@dataclass(frozen=True, slots=True)
class Preset:
    """Both directions of a link: up from the mobile end, down towards it."""

    up: LinkProfile
    down: LinkProfile
    source: str


def _symmetric(profile: LinkProfile, source: str) -> Preset:
    return Preset(profile, profile, source)


_GPRS_CHANNEL = 13_400  # bit/s
_GPRS_REPEAT = LinkRetransmission(error=1e-3, low=30 * MILLISECOND, high=50 * MILLISECOND)

PRESETS: dict[str, Preset] = {
    "lan": _symmetric(
        LinkProfile(delay=Constant(100 * MICROSECOND), bandwidth=1_000_000_000),
        "ours: switched gigabit Ethernet, 0.1 ms",
    ),
    "wifi": _symmetric(
        LinkProfile(
            delay=Uniform(373 * MICROSECOND, 573 * MICROSECOND),
            bandwidth=54_000_000,
            loss=GilbertElliott(to_bad=0.001, to_good=0.2, loss_in_bad=0.5),
        ),
        "mean delay 0.473 ms: dissertation, 4.4.2; 54 Mbit/s: 802.11g; "
        "jitter of 0.1 ms and bursts of loss (0.25 % in all): ours",
    ),
    "wifi-b": _symmetric(
        LinkProfile(
            delay=Uniform(1 * MILLISECOND, 3 * MILLISECOND),
            bandwidth=5_000_000,
            retransmission=LinkRetransmission(
                error=0.02, low=2 * MILLISECOND, high=6 * MILLISECOND
            ),
        ),
        "802.11b: ours, 11 Mbit/s of which 5 are left for data, 1 to 3 ms; 2 % of packets break "
        "and are repeated by the link, in 2 to 6 ms each time; nobody else is on the air",
    ),
    "lte": _symmetric(
        LinkProfile(delay=Constant(15_120 * MICROSECOND), bandwidth=10_000_000),
        "15.12 ms and 10 Mbit/s: dissertation, 4.4.2",
    ),
    "wimax": _symmetric(
        LinkProfile(delay=Constant(20_700 * MICROSECOND), bandwidth=10_000_000),
        "20.7 ms and 10 Mbit/s: dissertation, 4.4.2",
    ),
    "gprs": Preset(
        up=LinkProfile(
            delay=Constant(225 * MILLISECOND),
            bandwidth=2 * _GPRS_CHANNEL,
            queue=32 * 1024,
            retransmission=_GPRS_REPEAT,
        ),
        down=LinkProfile(
            delay=Constant(225 * MILLISECOND),
            bandwidth=3 * _GPRS_CHANNEL,
            queue=32 * 1024,
            retransmission=_GPRS_REPEAT,
        ),
        source="13.4 kbit/s a channel, 2 up and 3 down, error 1e-3 repaired in 30-50 ms: mobility "
        "support service, table 2; 450 ms round trip: measured on 2G for the channel middleware; "
        "32 KiB queue: ours",
    ),
    "sms": _symmetric(
        LinkProfile(
            delay=Uniform(5 * SECOND, 10 * SECOND),
            bandwidth=1_120,
            queue=140 * 100,
            loss=Independent(0.051),
            duplicate=0.01,
            reorder=0.05,
            reorder_by=60 * SECOND,
            mtu=140,
        ),
        "140 bytes, 15 s round trip, 5.1 % never delivered: channel middleware; one message a "
        "second, jitter, duplication and reordering: ours",
    ),
}
