"""Converts rows of the driver to a Spark DataFrame through Arrow.

From plain rows Spark would start Python worker processes, which takes a second.
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
