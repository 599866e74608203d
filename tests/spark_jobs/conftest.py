"""One Spark session and one report for all tests of a process: each outlasts most tests."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql.classic.dataframe import DataFrame

from spark_jobs import command, report
from spark_jobs.generating.generator import generate
from spark_jobs.generating.settings import Settings
from spark_jobs.session import build_session, stop

FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Of a few thousand rows, compiling a query takes far longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Nor is there anything to adapt to, and every exchange would be a job of its own.
    "spark.sql.adaptive.enabled": "false",
    # Rules that are known to be right need not be checked after each use.
    "spark.sql.lightweightPlanChangeValidation": "false",
    # With its first compiler alone Java has room for 48 MB of compiled code. These tests fill them,
    # and a session whose code has no room ends.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    ),
}


EVENTS = 6_000


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory):
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log):
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: Spark runs on it")
    session = build_session(
        "tests", master="local[2]", log=spark_log, settings=FAST,
    )  # fmt: skip
    yield session
    stop(session)


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Traces of a made-up world, all of them whole, and the truth beside them."""
    path = tmp_path_factory.mktemp("made") / "traces"
    generate(Settings(events=EVENTS, domains=3, loss=0.02, duplicates=0.02, reorder=0.02), path)
    return path


@dataclass
class Reported:
    """What `psph report` made of that world and one damaged file more."""

    traces: Path
    out: Path
    asked: list = field(default_factory=list)
    """How the command had Spark started and stopped."""
    answer: Result | None = None
    found: report.Findings | None = None
    plans: dict[str, str] = field(default_factory=dict)
    """How each table was computed."""


@pytest.fixture(scope="session")
def reported(spark, root, tmp_path_factory):
    """The command as it is, but with the session that is there."""
    directory = tmp_path_factory.mktemp("report")
    made = Reported(shutil.copytree(root, directory / "traces"), directory / "out")
    damaged = next(made.traces.glob("domain=*/date=*/node=*/*.parquet"))
    damaged.with_name("20270101T000000000000Z-00000000-000001.parquet").write_bytes(b"no parquet")
    make, collect, to_arrow = report.make_report, report.collect, DataFrame.toArrow

    def begin(*names, **settings):
        made.asked.append((names, settings))
        return spark

    def keep(*arguments):
        made.found = make(*arguments)
        return made.found

    def name(table, rows):
        def plan(frame):  # of the very query that is run: to plan another takes as long
            made.plans[table] = frame._jdf.queryExecution().executedPlan().toString()
            return to_arrow(frame)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DataFrame, "toArrow", plan)
            return collect(table, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "collect", name)
        patch.setattr(command, "build_session", begin)
        patch.setattr(command, "stop", made.asked.append)
        patch.setattr(report, "make_report", keep)
        call = ["--traces", made.traces, "--out", made.out, "--subscriber", "client-1"]
        made.answer = CliRunner().invoke(command.report, [*map(str, call)], catch_exceptions=False)
    return made
