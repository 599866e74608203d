"""Publications survive their fault schedules, and those with a planted bug do not."""

from __future__ import annotations

import pytest

from psirp_sim.publications.suite import PublicationsSuite
from tests.psirp_sim.publications.planted import PLANTED
from tests.psirp_sim.suites import finds, survives


def test_publications_survive(capsys):
    survives(PublicationsSuite(), capsys)


@pytest.mark.parametrize(("bug", "hint"), PLANTED.items(), ids=[bug.__name__ for bug in PLANTED])
def test_a_planted_bug_is_found(bug, hint):
    finds(PublicationsSuite(bug), bug, hint)
