"""What `psph traces follow` finds in our traces while we run: a file that it writes.

The job runs on Spark, elsewhere or not at all; nothing of it is imported here. The file appears
whole, by a rename. One that is not what it should be is as good as none.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from traces import LogEvent

_log = logging.getLogger(__name__)

LARGEST = 1 << 20
SHOWN = 30
"""Windows of each pair of domains that a page gets."""


class Window(msgspec.Struct, frozen=True):
    """Crossings between two domains that ended in a window of time."""

    window_ns: int
    from_domain: str
    to_domain: str
    count: int
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    uncertainty_ms: float | None = None


class Windows(msgspec.Struct, frozen=True):
    """The file."""

    window_s: int
    windows: list[Window]


class LiveWindows:
    """Looks at the file whenever it is asked."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self.shown: dict[str, object] | None = None
        """For pages; None while nobody follows our traces."""

    def look(self) -> bool:
        """Whether there is something else to show than before."""
        try:
            status = self._file.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            if seen == self._seen:
                return False
            self._seen = seen
            if status.st_size > LARGEST:
                raise ValueError(f"it has more than {LARGEST} bytes")
            read = msgspec.json.decode(self._file.read_bytes(), type=Windows)
        except FileNotFoundError:
            gone = self._seen is not None
            self._seen = self.shown = None
            return gone
        except (OSError, ValueError) as error:
            _log.warning(LogEvent("report.not_shown", file=self._file, reason=error))
            self.shown = None
            return True
        self.shown = _by_pair(read)
        return True


def _by_pair(read: Windows) -> dict[str, object]:
    pairs: dict[tuple[str, str], list[Window]] = {}
    for window in sorted(read.windows, key=lambda each: each.window_ns):
        pairs.setdefault((window.from_domain, window.to_domain), []).append(window)
    return {
        "window_s": read.window_s,
        "pairs": [
            {
                "from": origin,
                "to": destination,
                "windows": [
                    {
                        "at": window.window_ns // 1_000_000_000,
                        "count": window.count,
                        "p50": window.p50_ms,
                        "p90": window.p90_ms,
                        "p99": window.p99_ms,
                        "uncertainty": window.uncertainty_ms,
                    }
                    for window in windows[-SHOWN:]
                ],
            }
            for (origin, destination), windows in sorted(pairs.items())
        ],
    }
