"""The table of columns, the event and the table of stages say the same."""

import msgspec
import pytest

from traces import (
    COLUMNS,
    PARTITIONS,
    SCHEMA_VERSION,
    STAGES,
    Column,
    ColumnType,
    Stage,
    TraceEvent,
)

TYPES = {
    msgspec.inspect.StrType: ColumnType.TEXT,
    msgspec.inspect.EnumType: ColumnType.TEXT,
    msgspec.inspect.BytesType: ColumnType.BINARY,
    msgspec.inspect.IntType: ColumnType.INT64,
    msgspec.inspect.NoneType: None,
}


def test_columns_are_the_fields_of_the_event_in_order() -> None:
    assert tuple(column.name for column in COLUMNS) == TraceEvent.__struct_fields__


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_types_are_those_of_the_event(column: Column) -> None:
    info = msgspec.inspect.type_info(TraceEvent)
    assert isinstance(info, msgspec.inspect.StructType)
    field = next(field for field in info.fields if field.name == column.name)
    kinds = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
    types = {TYPES[type(kind)] for kind in kinds}
    assert types == ({column.type, None} if column.nullable else {column.type})
    assert field.required == (not column.nullable)


def test_columns_that_came_later_are_nullable_and_last() -> None:
    assert [column.since for column in COLUMNS] == sorted(column.since for column in COLUMNS)
    assert max(column.since for column in COLUMNS) <= SCHEMA_VERSION
    assert all(column.nullable for column in COLUMNS if column.since > 1)


def test_partitions_are_columns_and_the_date() -> None:
    assert set(PARTITIONS) - {"date"} <= {column.name for column in COLUMNS}


@pytest.mark.parametrize("stage", Stage)
def test_stages_ask_for_columns_that_exist_and_may_be_missing(stage: Stage) -> None:
    rule = STAGES[stage]
    nullable = {column.name for column in COLUMNS if column.nullable}
    assert rule.requires | rule.unless_reason <= nullable
    assert not rule.requires & rule.unless_reason
    assert rule.meaning
