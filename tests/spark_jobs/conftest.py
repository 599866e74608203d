"""One Spark session for all tests of a process: starting one takes longer than most tests."""

from __future__ import annotations

import shutil

import pytest

from spark_jobs.session import build_session, stop

FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Of a few thousand rows, compiling a query takes far longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Nor is there anything to adapt to, and every exchange would be a job of its own.
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: Spark runs on it")
    session = build_session(
        "tests", master="local[2]", log=tmp_path_factory.mktemp("spark") / "spark.log",
        settings=FAST,
    )  # fmt: skip
    yield session
    stop(session)
