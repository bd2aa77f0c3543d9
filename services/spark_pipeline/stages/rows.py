"""filter and lookup: one row in, at most one row out.

copy: the raw bytes, unchanged.
"""

import json
import zlib
from operator import eq, ge, gt, le, lt, ne

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from schemas.domain import StageSpec, Table

_COMPARE = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
_FOUND = "_found"
ROWS_PER_BUCKET = 4


def filtered(rows: DataFrame, stage: StageSpec) -> DataFrame:
    """Rows that satisfy all conditions."""
    for each in stage.where:
        rows = rows.where(_COMPARE[each.operator](F.col(each.column), F.lit(each.value)))
    return rows


def looked_up(rows: DataFrame, stage: StageSpec) -> DataFrame:
    """Rows with the columns of the table; rows without an entry are dropped.

    The table is a constant of the plan and not a second source, so that a lookup works wherever a
    projection does, including continuous and real-time mode.
    """
    assert stage.table is not None
    table = stage.table
    result = rows.withColumn(_FOUND, entry_of(F.col(table.key), table))
    result = result.where(F.col(_FOUND).isNotNull())
    return result.withColumns(
        {name: F.col(_FOUND)[f"c{number}"] for number, name in enumerate(table.columns)}
    ).drop(_FOUND)


def entry_of(key: Column, table: Table) -> Column:
    """A struct (c0, c1, …) of the table row with this key, or null.

    Spark searches maps linearly, so entries are distributed over small maps by a checksum.
    """
    count = max(1, len(table.rows) // ROWS_PER_BUCKET)
    buckets: list[dict[str, dict[str, float | str]]] = [{} for _ in range(count)]
    for name, row in table.rows.items():
        values = {f"c{number}": value for number, value in enumerate(row)}
        buckets[zlib.crc32(name.encode()) % count][name] = values
    # One JSON text, which the optimizer folds into a constant: a literal per entry would need
    # thousands of calls to the JVM.
    types = ", ".join(f"c{number}: {kind}" for number, kind in enumerate(_types(table)))
    constant = F.from_json(F.lit(json.dumps(buckets)), f"array<map<string, struct<{types}>>>")
    text = key.cast("string")
    return constant[F.crc32(text.cast("binary")) % count][text]


def _types(table: Table) -> list[str]:
    columns = list(zip(*table.rows.values(), strict=True)) or [()] * len(table.columns)
    return [
        "string" if any(isinstance(value, str) for value in column) else "double"
        for column in columns
    ]


def copy(raw: DataFrame) -> DataFrame:
    """Kafka rows → (key, value), unchanged: measures the cost of reading and writing alone."""
    return raw.select("key", "value")
