"""A standalone Spark cluster on this machine: a master and two workers, as processes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent
PATIENCE = 600
WORKERS = 2
_MASTER, _WORKER = (
    f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker")
)


@contextmanager
def running_cluster(directory):
    """The master's URL; everything listens on loopback only."""
    with ExitStack() as stack:
        log = _start(stack, directory / "master.log", _MASTER, "--port", "0")
        url = _said(log, r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            work = directory / f"worker-{number}"
            log = _start(
                stack, directory / f"worker-{number}.log", _WORKER,
                "--cores", "1", "--memory", "1g", "--work-dir", work, url,
            )  # fmt: skip
            _said(log, r"(Successfully registered with master)")
        yield url


def executors(directory):
    """How many each of the workers has had."""
    return [
        len(list((directory / f"worker-{number}").glob("app-*/[0-9]*")))
        for number in range(WORKERS)
    ]


def _start(stack, log, name, *options):
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [HOME / "bin" / "spark-class", name, "--host", "127.0.0.1", "--webui-port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in (*command, *options)],
            env=environment, stdout=output, stderr=output,
        )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return log


def _said(log, pattern):
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = re.search(pattern, log.read_text())
        if found:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"not said: {pattern}\n{log.read_text()[-2_000:]}")
