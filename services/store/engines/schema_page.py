"""The page docs/schema.md: every view and table with its columns, from the comments of the DDL.

To write it anew: `.venv/bin/python -m services.store.engines.schema_page`.
"""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from services.runtime.settings import ROOT
from services.store.engine import SqlEngine
from services.store.engines.chdb_engine import ChdbEngine
from services.store.engines.schema import ddl_statements
from services.store.settings import StoreSettings
from services.store.tables import DATABASE

PAGE = ROOT / "docs" / "schema.md"
HEAD = """# Tables and views

`python -m services.store.engines.schema_page` writes this page from the comments in
`deploy/clickhouse/` and the schemas of the events.
[SQL queries](sql.md) explains how to ask. Views answer questions. The tables `results_…`, from
which they are derived, hold the contents of the events. Their columns `_topic`, `_partition` and
`_offset` have the position of the event; they are omitted here.
"""
TABLES = f"""
SELECT name, engine = 'View' AS is_view, comment
FROM system.tables
WHERE database = '{DATABASE}'
ORDER BY NOT is_view, name
"""
COLUMNS = f"""
SELECT `table`, name, type, comment
FROM system.columns
WHERE database = '{DATABASE}' AND NOT startsWith(name, '_')
ORDER BY `table`, position
"""
# An encoding, which matters to nobody who asks.
ENCODED = re.compile(r"LowCardinality\((\w+)\)")


def schema_page(engine: SqlEngine) -> str:
    """The page as Markdown. engine: has the DDL. Raises EngineError."""
    columns: dict[str, list[dict[str, Any]]] = {}
    for row in engine.rows(COLUMNS):
        columns.setdefault(row["table"], []).append(row)
    tables = list(engine.rows(TABLES))
    lines = [
        HEAD,
        *_table(("name", "contents"), ((_link(table), table["comment"]) for table in tables)),
    ]
    for table in tables:
        kind = "view" if table["is_view"] else "table"
        lines += ["", f"## {table['name']}", "", f"A {kind}. {table['comment']}.", ""]
        lines += _table(
            ("column", "type", "meaning"),
            (
                (f"`{row['name']}`", f"`{_type(row['type'])}`", row["comment"])
                for row in columns[table["name"]]
            ),
        )
    return "\n".join(lines) + "\n"


def _link(table: dict[str, Any]) -> str:
    return f"[`{table['name']}`](#{table['name']})"


def _type(name: str) -> str:
    return ENCODED.sub(r"\1", name)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder:
        engine = ChdbEngine(StoreSettings(data=Path(folder)))
        try:
            engine.execute(ddl_statements())
            PAGE.write_text(schema_page(engine))
        finally:
            engine.close()


if __name__ == "__main__":
    main()
