"""How all tests run.

A test that is skipped where everything is installed hides a fault: CI fails then.
"""

import os
import signal

import pytest
from hypothesis import settings

settings.register_profile("psph", deadline=None, print_blob=True)
settings.load_profile("psph")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what is to run in the background. Processes of tests would inherit it, and
    # are told to stop by this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = (
    "tests/e2e/",
    "tests/psirp_sim/forwarding/test_suite.py",
    "tests/psirp_sim/publications/test_suite.py",
    "tests/psirp_sim/rendezvous/test_suite.py",
    "tests/psph/test_cli.py",
    "tests/bench/",
)
"""Where the tests are that take longest."""


def pytest_collection_modifyitems(items):
    """Long tests come first: where several processes run tests, none waits for one at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))  # the rest stays as it is


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{len(skipped)} tests were skipped, which CI does not allow:")
        for report in skipped:
            reporter.write_line(f"  {report.nodeid}: {report.longrepr[-1]}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
