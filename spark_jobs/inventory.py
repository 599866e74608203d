"""What became of the files: which are read, and which are left out, named and counted.

* **Unreadable**: Spark passes over what it cannot read. Here each file's events are counted twice,
  by the number its footer promises and by reading every column, and a file for which the two
  differ is left out as a whole: half of a file would look like losses.
* **Copies**: files of one node with the same bytes, whatever their names, count once. Whole files
  are what gets copied, by a back-up or a second collector, and files of the same length are few; to
  compare event by event would send all events through the network, and could not tell a copy from
  an update that was indeed delivered twice.
* **Missing**: writers number their files, so a number that is not there between two that are is a
  file that was there. Nothing can be left out, but a loss may be only the loss of a trace.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from traces import COLUMNS, PARTITIONS

NAMED = 1_000
"""Files that are left out by name; if there are more, a join leaves them out."""
UNREADABLE, COPY = "unreadable", "copy"
_NUMBERED = r"-([0-9a-f]{8})-(\d{6,})\.parquet$"


@dataclass(frozen=True)
class LeftOut:
    """A file that does not count, and why: `unreadable`, or a `copy`."""

    path: str
    why: str


@dataclass(frozen=True)
class Inventory:
    """The files of a directory."""

    files: int
    bytes: int
    unreadable: int
    copies: int
    missing: int
    left_out: tuple[LeftOut, ...]
    """Those that are left out, the first `NAMED` of them."""
    _all_left_out: DataFrame

    def without_left_out(self, events: DataFrame) -> DataFrame:
        """The events of the other files."""
        if not self.left_out:
            return events
        path = F.col("_metadata.file_path")
        if self.unreadable + self.copies <= NAMED:
            return events.where(~path.isin([file.path for file in self.left_out]))
        others = F.broadcast(self._all_left_out.select("path"))
        return events.withColumn("path", path).join(others, "path", "left_anti").drop("path")


def take_inventory(listed: DataFrame, events: DataFrame, *, thorough: bool) -> Inventory:
    """Look at all files; `listed` has a row for each, `events` the rows within."""
    files = _checked(listed, events, thorough).cache()  # a few words for each file
    alike = Window.partitionBy("domain", "node", "length")
    total = (
        files.withColumn("alike", F.count("*").over(alike))
        .agg(
            F.count("*").alias("files"),
            F.sum("length").alias("bytes"),
            F.sum(F.col("bad").cast("long")).alias("unreadable"),
            F.sum((F.col("alike") > 1).cast("long")).alias("alike"),
        )
        .collect()[0]
    )
    left_out = files.where("bad").select("path", F.lit(UNREADABLE).alias("why"))
    copies = 0
    if total["alike"]:
        good = files.where("not bad").select("path")
        others = _copies(listed.join(good, "path", "left_semi")).cache()
        copies = others.count()
        left_out = left_out.unionByName(others)
    named = left_out.orderBy("path").limit(NAMED).collect()
    return Inventory(
        files=total["files"],
        bytes=total["bytes"] or 0,
        unreadable=total["unreadable"] or 0,
        copies=copies,
        missing=_missing(files),
        left_out=tuple(LeftOut(row["path"], row["why"]) for row in named),
        _all_left_out=left_out,
    )


def _checked(listed: DataFrame, events: DataFrame, thorough: bool) -> DataFrame:
    """Each file, and whether it is `bad`: its footer cannot be read, or promises something else."""
    path = F.col("_metadata.file_path").alias("path")
    promised = events.groupBy(path).agg(F.count("*").alias("promised"))
    checked = listed.select("path", "domain", "node", "length").join(promised, "path", "left")
    bad = F.col("promised").isNull()
    if thorough:
        within = [column.name for column in COLUMNS if column.name not in PARTITIONS]
        # A digest needs every column, where to count rows Spark would read none.
        digest = F.bit_xor(F.xxhash64(*within)).alias("digest")
        found = events.groupBy(path).agg(digest, F.count("*").alias("found"))
        checked = checked.join(found, "path", "left")
        bad |= F.col("digest").isNull() | (F.col("promised") != F.col("found"))
    bad = F.coalesce(bad, F.lit(True))
    return checked.select("path", "domain", "node", "length", bad.alias("bad"))


def _copies(listed: DataFrame) -> DataFrame:
    """All but the first of files with the same bytes; only those of one length are read."""
    of = ["domain", "node", "length"]
    alike = listed.groupBy(*of).agg(F.count("*").alias("files")).where("files > 1")
    digests = listed.join(F.broadcast(alike), of).select(
        "domain", "node", "path", F.sha2("content", 256).alias("digest")
    )
    groups = digests.groupBy("domain", "node", "digest").agg(
        F.sort_array(F.collect_list("path")).alias("paths")
    )
    # The first in the order of names stays; `slice` has it that positions count from 1.
    others = F.slice("paths", 2, F.greatest(F.size("paths") - 1, F.lit(0)))
    return groups.select(F.explode(others).alias("path"), F.lit(COPY).alias("why"))


def _missing(files: DataFrame) -> int:
    """Numbers that are missing within those of a writer."""
    numbered = files.select(
        "domain",
        "node",
        F.regexp_extract("path", _NUMBERED, 1).alias("writer"),
        F.regexp_extract("path", _NUMBERED, 2).cast("long").alias("number"),
    ).where("writer <> ''")
    span = F.max("number") - F.min("number") + 1 - F.count_distinct("number")
    gaps = numbered.groupBy("domain", "node", "writer").agg(span.alias("missing"))
    total: int | None = gaps.agg(F.sum("missing")).collect()[0][0]
    return total or 0
