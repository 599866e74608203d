"""Rows of the driver as a table of Spark's.

By way of Arrow: from plain rows Spark would make a table with processes of Python, which take a
second to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def local_table(
    spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: StructType | str
) -> DataFrame:
    """A table of few rows."""
    types = cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(types))
    return spark.createDataFrame(table, types)
