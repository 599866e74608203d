"""A pytest plugin: a fabric in the process of your tests, on real sockets.

    def test_hello(psirp_fabric):
        alice = psirp_fabric.run(psirp_fabric.client("alice"))
        ...

docs/client.md has the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from psirp_sim.runtime.loopback import LoopbackFabric


@pytest.fixture
def psirp_fabric() -> Iterator[LoopbackFabric]:
    """A `LoopbackFabric` that runs; use its `run` and `client`."""
    # Here, because pytest loads its plugins in every run, those that need no fabric too.
    from psirp_sim.runtime.loopback import LoopbackFabric

    with LoopbackFabric() as fabric:
        yield fabric
