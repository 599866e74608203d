"""Reading trace directories: the schema, which files, and from when.

Files are found by Spark through Hadoop's file systems, so a path may be anything Spark reads:
`/var/lib/psph/traces`, `hdfs://...`, `s3a://...`. The layout is asked for by a pattern and not
discovered: whatever else lies in the directory, a report for example, is passed over. Names that
begin with `_` are unfinished and passed over by Spark itself.

Which of the files are damaged or there twice is found out by `inventory`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark_jobs.errors import NoTraces
from spark_jobs.inventory import Inventory, take_inventory
from traces import COLUMNS, ColumnType

_KINDS: dict[ColumnType, DataType] = {
    ColumnType.TEXT: StringType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.INT64: LongType(),
}
# Every column is nullable here: a file may lack one that came later, or hold less than it should.
SCHEMA = StructType(
    [StructField(column.name, _KINDS[column.type]) for column in COLUMNS]
    + [StructField("date", DateType())]
)
LAYOUT = "domain=*/date=*/node=*"
FILES = "*.parquet"


@dataclass(frozen=True)
class Traces:
    """What was read: the events of every file that counts, and what became of the files."""

    events: DataFrame
    files: Inventory


def read_traces(
    spark: SparkSession,
    path: str,
    since: datetime | None = None,
    domain: str | None = None,
    *,
    thorough: bool = True,
) -> Traces:
    """The events below the path, of one domain and from a time on if that is wished.

    Unless `thorough`, files that are damaged within are not looked for; what can be read of them
    counts then.
    """
    chosen = _chosen(since, domain)
    raw = scan(spark, path).where(chosen)
    listed = _listing(spark, path).where(chosen)
    files = take_inventory(listed, raw, thorough=thorough)
    events = files.without_left_out(raw)
    if since is not None:
        events = events.where(F.col("wall_ns") >= nanoseconds(since))
    return Traces(events.select(*SCHEMA.fieldNames()), files)


def scan(spark: SparkSession, path: str) -> DataFrame:
    """Every event of every finished file below the path, by the schema of this release."""
    reader = spark.read.schema(SCHEMA).option("basePath", path).option("pathGlobFilter", FILES)
    try:
        return reader.parquet(f"{path.rstrip('/')}/{LAYOUT}")
    except AnalysisException as error:
        raise no_traces(path, error) from error


def nanoseconds(moment: datetime) -> int:
    """Of a time, which is taken as UTC where it does not say."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000) * 1_000


def no_traces(path: str, error: Exception) -> NoTraces:
    """What to say of a path that Spark finds nothing at."""
    del error
    return NoTraces(f"no traces in {path}: it has no {LAYOUT} directories (docs/traces.md)")


def _listing(spark: SparkSession, path: str) -> DataFrame:
    """One row for each file, with its length; nothing of it is read."""
    reader = spark.read.format("binaryFile").option("basePath", path)
    files = reader.option("pathGlobFilter", FILES).load(f"{path.rstrip('/')}/{LAYOUT}")
    # Not the column `path`: names of files are written differently there than for events.
    return files.withColumn("path", F.col("_metadata.file_path"))


def _chosen(since: datetime | None, domain: str | None) -> Column:
    """On the partition columns alone, so that other directories are not even listed."""
    chosen = F.lit(True)
    if domain is not None:
        chosen &= F.col("domain") == domain
    if since is not None:
        day = datetime.fromtimestamp(nanoseconds(since) / 1e9, UTC).date()
        chosen &= F.col("date") >= F.lit(day)
    return chosen
