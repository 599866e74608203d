"""How all tests run.

A test that is skipped where everything is installed hides a fault: CI fails then.
"""

import gc
import os
import signal

import pytest
from hypothesis import settings

EXPLORE = "PSPH_EXPLORE" in os.environ
"""Whether hypothesis draws other examples in every run, as `.ci/long` has it do. Otherwise the same
commit has the same examples everywhere, and a test that fails does so again."""
settings.register_profile(
    "psph", deadline=None, print_blob=True, derandomize=not EXPLORE,
    max_examples=100 if EXPLORE else 50,
)  # fmt: skip
settings.load_profile("psph")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what is to run in the background. Processes of tests would inherit it, and
    # are told to stop by this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = (
    "tests/e2e/", "tests/spark_jobs/", "/test_suite.py", "tests/bench/",
    "tests/push_hub/test_browser.py", "tests/push_hub/test_upstream.py", "tests/psph/",
    "tests/demo/", "tests/bootstrap/test_against_servers.py",
    "tests/psirp_sim/runtime/test_client.py", "tests/psirp_sim/test_joining.py",
    "tests/experiments/", "tests/test_packaging.py",
)  # fmt: skip
"""Where the tests are that take longest: they come first, so that where several processes run
tests none waits for one of them at the end."""


def pytest_collection_modifyitems(items):
    def place(item):
        return next((n for n, part in enumerate(LONG) if part in item.nodeid), len(LONG))

    items.sort(key=place)  # those in the same place stay as they are


# Traversing thousands of collected tests again and again takes a third of the time of collecting
# them, and a fifth of the CPU time of tests that run in this process.
gc.disable()


def pytest_collection_finish(session):
    """Exclude what was collected from garbage collection."""
    gc.collect()
    gc.enable()
    gc.freeze()


WORLDS = ("tests/e2e/browser/", "tests/e2e/failover/", "tests/e2e/proxies/", "tests/spark_jobs/")
"""Folders whose tests share one world of processes, or Spark: one worker runs them all."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class ByWorld(LoadFileScheduling):
        def _split_scope(self, nodeid):
            shared = (folder for folder in WORLDS if nodeid.startswith(folder))
            return next(shared, None) or super()._split_scope(nodeid)

    return ByWorld(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{len(skipped)} tests were skipped, which CI does not allow:")
        for report in skipped:
            reporter.write_line(f"  {report.nodeid}: {report.longrepr[-1]}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
