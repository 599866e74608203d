"""`psph report` as a process with a Spark of its own: one line is said, Spark's go to its log.

Starts a virtual machine for that, which costs `make test` too much; `.ci/long` runs it.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from spark_jobs.generating.generator import generate
from spark_jobs.generating.settings import Settings
from tests.demo.up import PSPH

pytestmark = pytest.mark.timeout(900)


def test_spark_is_silent(tmp_path):
    generate(Settings(events=500, domains=2), tmp_path / "traces")
    call = ["--traces", tmp_path / "traces", "--out", tmp_path / "out", "--domain", "nobody.test"]
    answer = subprocess.run(
        [*PSPH, "report", *call], capture_output=True, text=True, timeout=600
    )  # fmt: skip
    assert (answer.returncode, answer.stdout) == (1, "")
    assert re.fullmatch(r"psph: no event in [^\n]*\n", answer.stderr)
    assert (tmp_path / "out" / "spark.log").stat().st_size > 0
