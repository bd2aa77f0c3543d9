"""What every program is asked to do: addresses, and the SQL of the tools that people use.

The queries of TREES are what DBeaver, Metabase, Superset, Grafana and Excel (through ODBC) ask to
fill their trees of databases, tables and columns. The first column of each has the names.
"""

from collections.abc import Sequence
from typing import Any, Final

from services.store.tables import DATABASE

VIEW: Final = "latency_summary"
TABLE: Final = "projection_position"
_OF_VIEW: Final = f"database = '{DATABASE}' AND table = '{VIEW}'"
TREES: Final = {
    "catalogs": (
        "SHOW DATABASES",
        "SELECT name FROM system.databases",
        "SELECT CAST(name, 'Nullable(String)') AS TABLE_CAT,"
        " CAST(NULL, 'Nullable(String)') AS TABLE_SCHEM FROM system.databases",
    ),
    "schemas": (
        "SELECT schema_name FROM information_schema.schemata",
        f"SELECT name, engine, comment FROM system.databases WHERE name = '{DATABASE}'",
    ),
    "tables": (
        "SHOW TABLES",
        f"SHOW TABLES FROM {DATABASE}",
        f"SHOW CREATE TABLE {DATABASE}.{VIEW}",
        f"EXISTS TABLE {DATABASE}.{VIEW}",
        f"SELECT name AS TABLE_NAME, engine AS TABLE_TYPE, database AS TABLE_SCHEM,"
        f" comment AS REMARKS, * FROM system.tables WHERE database = '{DATABASE}'",
        f"SELECT CAST(name, 'Nullable(String)') AS TABLE_NAME,"
        f" CAST(database, 'Nullable(String)') AS TABLE_CAT FROM system.tables"
        f" WHERE (1 == 1) AND isNotNull(TABLE_CAT)"
        f" AND coalesce(TABLE_CAT, '') LIKE '{DATABASE}'",
        "SELECT name, database FROM system.tables ORDER BY database, name",
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}'",
        "SELECT name FROM system.table_engines",
        f"SELECT any(engine), sum(bytes), sum(rows), max(modification_time), min(min_date),"
        f" max(max_date) FROM system.parts"
        f" WHERE database = '{DATABASE}' AND table = '{TABLE}' GROUP BY table",
    ),
    "columns": (
        f"DESCRIBE TABLE {DATABASE}.{VIEW}",
        f"SELECT name, type, comment, position FROM system.columns WHERE {_OF_VIEW}",
        f"SELECT name, database, table, type, comment FROM system.columns"
        f" WHERE (database, table) IN (('{DATABASE}', '{VIEW}'))"
        f" ORDER BY database, table, position",
        f"SELECT column_name, data_type, is_nullable FROM information_schema.columns"
        f" WHERE table_schema = '{DATABASE}' AND table_name = '{VIEW}'",
        "SELECT name, case_insensitive, alias_to FROM system.data_type_families",
    ),
    "keys": (
        f"SELECT name FROM system.columns"
        f" WHERE database = '{DATABASE}' AND table = '{TABLE}' AND is_in_primary_key",
        f"SELECT name, primary_key, sorting_key, partition_key FROM system.tables"
        f" WHERE database = '{DATABASE}' AND name = '{TABLE}'",
        f"SELECT name, type, expr FROM system.data_skipping_indices WHERE database = '{DATABASE}'",
    ),
    "functions": (
        "SELECT name FROM system.functions UNION ALL"
        " SELECT name FROM system.table_functions LIMIT 10000",
        "SELECT name, is_aggregate, case_insensitive FROM system.functions",
    ),
}
# The first five are compared; each client reads the others as it can.
TYPES: Final = """
    SELECT
        toUInt64(18446744073709551615) AS largest,
        toInt64(-9223372036854775808) AS smallest,
        toFloat64(0.5) AS half,
        'it''s größe' AS text,
        CAST(NULL, 'Nullable(String)') AS missing
"""
FURTHER_TYPES: Final = """
    SELECT
        toDecimal64('12345.6789', 4) AS amount,
        toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0') AS id,
        [toUInt32(1), 2, 3] AS list,
        map('a', toUInt64(1)) AS named,
        tuple(toUInt8(1), 'x') AS pair,
        toDateTime64('2026-01-02 03:04:05.678', 3, 'UTC') AS instant,
        toDateTime('2026-01-02 03:04:05', 'UTC') AS second,
        toDate('2026-01-02') AS day,
        true AS flag,
        CAST('a', 'Enum8(\\'a\\' = 1)') AS choice,
        toIPv4('127.0.0.1') AS address,
        toLowCardinality('low') AS low,
        toFixedString('abc', 3) AS fixed,
        CAST([NULL, 'x'], 'Array(Nullable(String))') AS gaps
"""
FURTHER_COLUMNS: Final = 14
TEXT: Final = "it's 100% größe \\ ? {x} :y"
NUMBER: Final = 42
LIMIT: Final = 10
ROWS: Final = 1_000_000
LONG: Final = "SELECT sum(cityHash64(number)) FROM numbers(100000000000)"
STREAM: Final = f"SELECT number FROM numbers({ROWS})"
WRONG: Final = f"SELECT nope FROM {DATABASE}.{VIEW}"
WRITE: Final = f"DROP TABLE {DATABASE}.{TABLE}"


def task(host: str, port: int, password: str, views: Sequence[str]) -> dict[str, Any]:
    """The task as JSON. password: of the user `reader`."""
    return {
        "host": host,
        "port": port,
        "user": "reader",
        "password": password,
        "database": DATABASE,
        "view": VIEW,
        "table": TABLE,
        "trees": {operation: list(queries) for operation, queries in TREES.items()},
        "views": {view: f"SELECT * FROM {DATABASE}.{view} LIMIT 1000" for view in views},
        "types": TYPES,
        "further_types": FURTHER_TYPES,
        "text": TEXT,
        "number": NUMBER,
        "limit": LIMIT,
        "long": LONG,
        "stream": STREAM,
        "wrong": WRONG,
        "write": WRITE,
    }
