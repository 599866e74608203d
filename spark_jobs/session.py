"""Starting Spark: the same on a laptop and on a cluster, and without a word on the terminal.

The virtual machine is started with its own output in a log file, so that nothing it or a library
in it says, at whatever moment, reaches whoever reads the answer. Java is looked for first: without
it PySpark fails with a page of text that does not name it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.errors import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
LOCAL = "local[*]"
_ANSWER_SECONDS = 30

SETTINGS: dict[str, str] = {
    # Times are nanoseconds of UTC; dates must not depend on where the job runs.
    "spark.sql.session.timeZone": "UTC",
    # Retention removes files, and crashes damage them, while a job runs; `inventory` names them.
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    # A directory that is not a date is passed over, not a reason to read nothing.
    "spark.sql.sources.validatePartitionColumns": "false",
    # A node called 007 is not a number.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
# One machine needs fewer pieces than a cluster, and has no processors to spare for collecting.
_ON_ONE_MACHINE: dict[str, str] = {
    "spark.sql.shuffle.partitions": "32",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}


def check_java() -> None:
    """Raise `SparkUnavailable` unless PySpark and a Java that it runs on are here."""
    if find_spec("pyspark") is None:
        raise SparkUnavailable("PySpark is not installed: pip install 'psph[spark]'")
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home, "bin", "java") if home else "java")
    wanted = (
        f"install Java {OLDEST_JAVA} or newer (Debian: openjdk-17-jre-headless)"
        " and have java on PATH or JAVA_HOME set to it"
    )
    if java is None:
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "Java is missing"
        raise SparkUnavailable(f"{where}: {wanted}")
    found = _version(java)
    if found is None:
        raise SparkUnavailable(f"{java} does not say its version: {wanted}")
    if found < OLDEST_JAVA:
        raise SparkUnavailable(f"{java} is Java {found}, too old for Spark: {wanted}")


def build_session(
    name: str,
    *,
    log: Path,
    master: str = LOCAL,
    driver_memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on that master; all that Spark says goes to the log file."""
    check_java()
    # It warns of a pandas that is younger than itself wherever one is installed; none is used here.
    warnings.filterwarnings("ignore", ".*pandas.*", FutureWarning, r"pyspark\.")
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False)
    conf.setMaster(master).setAppName(name).set("spark.driver.memory", driver_memory)
    if master.startswith("local"):
        # A laptop on a foreign network often has a name that leads nowhere.
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
        conf.setAll([*_ON_ONE_MACHINE.items()])
    conf.setAll([*SETTINGS.items(), *(settings or {}).items()])
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as output:
            output_to: Any = {"stdout": output, "stderr": output}
            gateway = launch_gateway(conf, output_to)  # type: ignore[no-untyped-call]
        session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    except Exception as error:
        if not isinstance(error, PySparkException) and not _of_java(error):
            raise
        raise SparkUnavailable(f"Spark did not start on {master}: see {log}") from error
    session.sparkContext.setLogLevel("WARN")
    return session


def stop(session: SparkSession) -> None:
    """End the session and the virtual machine it ran in."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()  # which is how it learns that nobody needs it any more
            process.wait(_ANSWER_SECONDS)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _version(java: str) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _of_java(error: Exception) -> bool:
    from py4j.protocol import Py4JError

    return isinstance(error, Py4JError)
