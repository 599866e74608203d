"""One world for all tests of this folder, in which one of two PSPHs of a domain is killed."""

from __future__ import annotations

import pytest

from tests.e2e.domains import Domains, Psph
from tests.e2e.failover.names import FIRST, SECOND, A, B
from tests.e2e.node_process import eventually


@pytest.fixture(scope="package")
def domains(tmp_path_factory):
    psphs = [Psph(A, FIRST), Psph(A, SECOND), B]
    with Domains(tmp_path_factory.mktemp("failover"), psphs) as domains:
        domains.start()
        yield domains


@pytest.fixture
def world(domains):
    """With both PSPHs, whichever an earlier test has killed."""
    for key in (FIRST, SECOND):
        if domains.proxies[key].process is None:
            domains.proxies[key].launch()
            domains.proxies[key].ready()
            eventually(lambda key=key: domains.is_joined(key))
    return domains
