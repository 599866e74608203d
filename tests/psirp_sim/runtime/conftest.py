import pytest

from tests.psirp_sim.runtime.worlds import SimulatedWorld, UdpWorld


@pytest.fixture(params=[SimulatedWorld, UdpWorld])
def world(request, tmp_path):
    """Two nodes and a link: in virtual time, and over real sockets."""
    return request.param(tmp_path)
