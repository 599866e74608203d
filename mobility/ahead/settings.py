"""The settings of preparation. Times are nanoseconds, as everywhere below the facades."""

from __future__ import annotations

from dataclasses import dataclass

from psirp_sim.runtime.durations import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class AheadSettings:
    """Of one proxy. Off, nothing is prepared, kept or said, and words of others are dropped."""

    on: bool = False
    key: bytes = b""
    """32 secret bytes that passes are made with. Empty: drawn from the environment, whose numbers
    others may come to guess; it may differ after a restart, passes are then asked for anew."""
    neighbours: int = 8
    """How many are known at a time; of more, the one used longest ago goes."""
    age: int = 6 * 3600 * SECOND
    """A neighbour to and from whom nobody moved for so long is none any more."""
    contexts: int = 10_000
    """Kept for other proxies."""
    share: int = 2_500
    """Of these, for one of them."""
    topics: int = 1_000
    """That active contexts buffer, all together; and as many that are only kept warm."""
    bytes: int = 64 << 20
    """Of all contexts, their buffers included; beyond it, the buffer begun first goes."""
    context_bytes: int = 1 << 20
    """Of one buffer."""
    lapse: int = 600 * SECOND
    """After which a context goes that its proxy said nothing of."""
    grace: int = 2 * SECOND
    """For the proxy that a client was seen at to say who its neighbours are."""
    retry_first: int = 1 * SECOND
    """Until a word is repeated that is not answered."""
    retry_most: int = 8 * SECOND
    tries: int = 6
    """After so many a neighbour is left alone, until there is something new to say."""
    window: int = 4
    """Words under way to one neighbour."""
    word_bytes: int = 16 << 10
    """Of changes in one word, except that one always fits."""
    largest: int = 256 << 10
    """Of the subscriptions of one client; a larger one is not prepared."""
    welcome: int = 16 << 10
    """Bytes of messages that go with the Welcome of a prepared proxy; the rest is asked for."""

    def __post_init__(self) -> None:
        if len(self.key) not in (0, 32):
            raise ValueError(f"key: {len(self.key)} bytes, and 32 are needed")

    @property
    def renewal(self) -> int:
        """Between two words that keep a context from lapsing: two may be lost."""
        return max(self.lapse // 3 - 10 * MILLISECOND, MILLISECOND)
