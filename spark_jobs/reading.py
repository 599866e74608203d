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
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark_jobs.inventory import Inventory, take_inventory
from spark_jobs.layout import FILES, LAYOUT, no_traces
from traces import COLUMNS, PARTITIONS, ColumnType

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
        raise no_traces(path) from error


def nanoseconds(moment: datetime) -> int:
    """Of a time, which is taken as UTC where it does not say."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000) * 1_000


def _listing(spark: SparkSession, path: str) -> DataFrame:
    """One row for each file, with its length; nothing of it is read."""
    reader = spark.read.format("binaryFile").option("basePath", path)
    files = reader.option("pathGlobFilter", FILES).load(f"{path.rstrip('/')}/{LAYOUT}")
    columns = ("path", *PARTITIONS, "length", "content")
    # Not the column `path`: names of files are written differently there than for events.
    listed = files.withColumn("path", F.col("_metadata.file_path")).select(*columns)
    return listed.unionByName(_empty(spark, files, listed).select(*columns))


def _empty(spark: SparkSession, files: DataFrame, listed: DataFrame) -> DataFrame:
    """Files of no bytes at all: Spark knows their names, but never lists them with the others."""
    java: Any = spark.sparkContext._jvm
    # The names stay where they are: of many files they are too many for Python.
    names = java.org.apache.spark.sql.functions.lit(files._jdf.inputFiles())
    paths = spark.range(1).select(F.explode(ClassicColumn(names)).alias("path"))
    # Local files are written in two ways, and `_metadata.file_path` has the other.
    paths = paths.withColumn("path", F.regexp_replace("path", "^file:/+", "file:/"))
    for name in PARTITIONS:
        # Escaped by the writer, and once more as part of an address.
        value = F.regexp_extract("path", f"/{name}=([^/]*)/", 1)
        paths = paths.withColumn(name, F.url_decode(F.url_decode(value)))
    return (
        paths.join(listed.select("path"), "path", "left_anti")
        .withColumn("length", F.lit(0).cast("long"))
        .withColumn("content", F.lit(None).cast("binary"))
    )


def _chosen(since: datetime | None, domain: str | None) -> Column:
    """On the partition columns alone, so that other directories are not even listed."""
    chosen = F.lit(True)
    if domain is not None:
        chosen &= F.col("domain") == domain
    if since is not None:
        day = datetime.fromtimestamp(nanoseconds(since) / 1e9, UTC).date()
        chosen &= F.col("date") >= F.lit(day)
    return chosen
