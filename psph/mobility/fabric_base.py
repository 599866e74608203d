"""When a subscription at the fabric is in effect for a client that moves, and from where on.

The rendezvous knows who publishes, and not how far they are. A subscription that goes on after
Positions is whole once it has caught up with the publishers that these are of: whatever is newer
comes from them. One that is not heard of may be gone, with all that it had; then nothing can be
promised, and the client asks the proxies of its earlier stays.
"""

from __future__ import annotations

from collections.abc import Callable

from mobility import After
from psirp_sim.publications.delivery import Subscription
from psirp_sim.runtime.durations import SECOND
from psirp_sim.runtime.environment import Environment
from psirp_sim.wire.rendezvous import Code

_HEARD_OF = SECOND
"""For publishers to say that they are there."""
_CAUGHT_UP = 10 * SECOND


class Beginning:
    """Tells once, with the base: the Positions it was given, or None when it cannot be known."""

    def __init__(self, env: Environment, after: After, tell: Callable[[After], None]) -> None:
        self._env = env
        self._after = after
        self._tell = tell
        self._told = self._registered = False
        self.subscription: Subscription | None = None
        """Set by who subscribes, and None again when nobody is to be told."""

    def answered(self, code: Code) -> None:
        """The rendezvous has let it listen, or not."""
        if code is Code.OK:
            # Later: the answer may be known while `subscribe` is still being called.
            self._env.call_later(0, self._begin)

    def look(self) -> None:
        """Something may have changed: a publisher was heard of, a version is done with."""
        found = self.subscription
        if self._told or not self._registered or found is None:
            return
        known = self._after or ()
        if all(found.has_begun(found.rid, each.publisher.raw) for each in known):
            self._say(known or None)

    def _begin(self) -> None:
        self._registered = True
        self.look()
        self._env.call_later(_HEARD_OF, self._doubt)
        self._env.call_later(_CAUGHT_UP, self._say, None)

    def _doubt(self) -> None:
        found = self.subscription
        if found is not None:
            streams = {(found.rid, each.publisher.raw) for each in self._after or ()}
            if not streams <= found.cursors.keys():
                self._say(None)

    def _say(self, base: After) -> None:
        if not self._told and self.subscription is not None:
            self._told = True
            self._tell(base)
