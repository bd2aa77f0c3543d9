"""Reads the static table of a lookup from a CSV file in the folder of its domain."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from services.runtime.csv_files import InputError, check_header, no_column, opened_csv
from services.runtime.domain_columns import check


def with_table(folder: Path, stage: dict[str, Any], schemas: dict[str, str]) -> dict[str, Any]:
    """A stage with the rows of its table: strings where the stage's record has strings, else
    numbers. Raises ValueError."""
    table = stage.get("table")
    if not isinstance(table, dict) or "file" not in table:
        return stage
    for name in ("key", "columns"):
        check(name in table, f"the table {table['file']} needs {name}")
    path = (folder / str(table["file"])).resolve()
    is_inside = path.is_relative_to(folder.resolve())
    check(is_inside, f"the table {table['file']} is outside the folder")
    schema = json.loads(schemas.get(stage.get("record", ""), '{"fields": []}'))
    texts = {field["name"] for field in schema["fields"] if "string" in str(field["type"])}
    key, columns = table["key"], table["columns"]
    rows = _rows(path, key, columns, texts)
    return stage | {"table": {"key": key, "columns": columns, "rows": rows}}


def _rows(
    path: Path, key: str, columns: Sequence[str], texts: Collection[str]
) -> dict[str, tuple[float | str, ...]]:
    """Values of the columns by that of the key. Raises ValueError with the file and the line."""
    rows: dict[str, tuple[float | str, ...]] = {}
    try:
        with opened_csv(path) as (header, lines):
            check_header(path, header, (key, *columns))
            for name in (key, *columns):
                if name not in header:
                    raise no_column(path, header, name, "")
            for line, cells in lines:
                try:
                    found = _row(header, cells, key, columns, texts)
                    check(found[0] not in rows, f"{key} {found[0]!r} occurs a second time")
                except ValueError as error:
                    raise ValueError(f"{path.name}, line {line}: {error}") from error
                rows[found[0]] = found[1]
    except InputError as error:
        raise ValueError(str(error).rstrip(".")) from error
    return rows


def _row(
    header: Sequence[str],
    cells: Sequence[str],
    key: str,
    columns: Sequence[str],
    texts: Collection[str],
) -> tuple[str, tuple[float | str, ...]]:
    """The key and the values of a row. Raises ValueError."""
    check(len(cells) == len(header), "the row has more or fewer columns than the header")
    row = dict(zip(header, cells, strict=True))
    check(row[key] != "", f"{key} is empty")
    return row[key], tuple(row[one] if one in texts else _number(one, row[one]) for one in columns)


def _number(column: str, cell: str) -> float:
    check(cell != "", f"{column} is empty")
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{column} is {cell!r}, which is not a number") from None
