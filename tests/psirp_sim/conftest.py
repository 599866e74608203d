"""What the tests of the fabric share."""

from __future__ import annotations

import pytest

from psirp_sim.runtime import fastpath


@pytest.fixture(
    params=[
        pytest.param(False, id="python"),
        pytest.param(
            True,
            id="c",
            marks=pytest.mark.skipif(fastpath.MISSING is not None, reason=str(fastpath.MISSING)),
        ),
    ]
)
def accelerate(request):
    """Each link driver in turn."""
    return request.param
