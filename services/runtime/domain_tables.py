"""Reads the static table of a lookup from a CSV file in the folder of its domain."""

import csv
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

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
    rows = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            header = reader.fieldnames or ["none"]
            for name in (key, *columns):
                check(name in header, f"no column {name!r}; there are: {', '.join(header)}")
            for row in reader:
                is_whole = None not in (*row, *row.values())
                check(is_whole, "the row has more or fewer columns than the header")
                check(row[key] != "", f"{key} is empty")
                rows[row[key]] = tuple(
                    row[one] if one in texts else _number(one, row[one]) for one in columns
                )
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path.name}, line {reader.line_num}: {error}") from error
    return rows


def _number(column: str, cell: str) -> float:
    check(cell != "", f"{column} is empty")
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{column} is {cell!r}, which is not a number") from None
