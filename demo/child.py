"""A part that has a process of its own: `psph` as always, and it ends with the one above it."""

from __future__ import annotations

import os
import signal
import sys
import threading

from psph.cli import main


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main()
