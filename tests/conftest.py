"""A test that is skipped where everything is installed hides a fault: CI fails then."""

import os

import pytest
from hypothesis import settings

settings.register_profile("psph", deadline=None, print_blob=True)
settings.load_profile("psph")


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{len(skipped)} tests were skipped, which CI does not allow:")
        for report in skipped:
            reporter.write_line(f"  {report.nodeid}: {report.longrepr[-1]}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
