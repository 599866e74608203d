"""How large tests are: `make test` runs them small, `.ci/long` at full size."""

from __future__ import annotations

import os

LONG = "PSPH_LONG" in os.environ


def size(small: int, full: int) -> int:
    return full if LONG else small
