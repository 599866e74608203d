"""Who may keep something for a client: a debt for each stay that is not known to be consumed.

A debt is durable before the proxy is asked for anything, and is paid when everything that could
wait there has been consumed. Paid ones are remembered until their proxy knows that it may forget.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from mobility.attendance import Attendance
from mobility.memory import Claimed, Debt, Memory


class Debts:
    """Of one client. The last one is where it is, or was last."""

    def __init__(self, memory: Memory, attendance: Attendance, most: int) -> None:
        self.claimed = Claimed()
        self._memory = memory
        self._attendance = attendance
        self._most = most

    def restore(self) -> None:
        """Read back what was durable."""
        self.claimed = self._memory.claimed()

    @property
    def epoch(self) -> int:
        """The number of the last move-in."""
        return self.claimed.epoch

    @property
    def earlier(self) -> tuple[Debt, ...]:
        """All but the place where the client is."""
        return self.claimed.debts[:-1]

    @property
    def present(self) -> Debt:
        """Where the client is."""
        return self.claimed.debts[-1]

    def incur(self, proxy: str, epoch: int, durable: Callable[[], None]) -> None:
        """The client is about to move in there."""
        debts = (*self.claimed.debts, Debt(proxy, epoch))
        self.claimed = replace(self.claimed, epoch=epoch, debts=debts[-self._most :])
        self._memory.save(self.claimed, durable)

    def exceed(self, epoch: int) -> None:
        """Another copy of the client is at that epoch: the next one is meant to win."""
        self.claimed = replace(self.claimed, epoch=max(self.claimed.epoch, epoch))

    def pay(self) -> None:
        """Everything has been consumed. Earlier stays are over once this proxy has taken over:
        until then, what is published after this client vanishes might be kept by nobody else."""
        if self._attendance.welcomed and self.earlier:
            paid = (*self.claimed.paid, *self.earlier)[-self._most :]
            self.claimed = replace(self.claimed, debts=self.claimed.debts[-1:], paid=paid)
            # Once this is durable so is everything consumed before: it need not be kept any more.
            self._memory.save(self.claimed, self.release)

    def release(self) -> None:
        """Let proxies know what they may forget."""
        if self._attendance.welcomed:
            for debt in self.claimed.paid:
                self._attendance.release(debt, self._on_released)

    def _on_released(self, debt: Debt) -> None:
        paid = tuple(each for each in self.claimed.paid if each != debt)
        self.claimed = replace(self.claimed, paid=paid)
        self._memory.save(self.claimed)
