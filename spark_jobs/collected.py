"""What comes to the driver: tables of a bounded number of rows, and their files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

MOST_ROWS = 10_000

Row = dict[str, Any]


@dataclass(frozen=True)
class Collected:
    """A table on the driver; `cut` if there were more rows than may come here."""

    name: str
    table: pa.Table
    cut: bool

    @property
    def rows(self) -> list[Row]:
        """As plain values."""
        rows: list[Row] = self.table.to_pylist()
        return rows

    def write(self, out: Path) -> None:
        """NAME.parquet and NAME.json."""
        pq.write_table(self.table, out / f"{self.name}.parquet")
        text = json.dumps(self.rows, ensure_ascii=False, indent=1)
        (out / f"{self.name}.json").write_text(text + "\n")


def collect(name: str, rows: DataFrame) -> Collected:
    """The first rows in the order they have, at most `MOST_ROWS`."""
    table = rows.limit(MOST_ROWS + 1).toArrow()
    return Collected(name, table.slice(0, MOST_ROWS), table.num_rows > MOST_ROWS)
