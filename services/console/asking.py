"""The verb `sql`: one query, printed or written to a file, and example queries."""

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.syntax import Syntax

from schemas.validation_errors import DefinitionError
from services.console.files import write_file
from services.console.terminal import harmless, headed
from services.runtime.clickhouse import StoreUrl, query_bytes
from services.runtime.settings import ROOT

EXAMPLES_DIR = ROOT / "deploy" / "clickhouse" / "examples"
FORMATS = {
    "table": "PrettyCompact",
    "csv": "CSVWithNames",
    "json": "JSONEachRow",
    "jsonl": "JSONEachRow",
    "md": "Markdown",
    "parquet": "Parquet",
    "tsv": "TSVWithNames",
}
BINARY = ("Arrow", "ArrowStream", "Avro", "Native", "ORC", "Parquet", "RowBinary")


@dataclass(frozen=True)
class Example:
    """A common question and the query that answers it."""

    number: int
    question: str
    sql: str


def examples() -> tuple[Example, ...]:
    """All examples in order."""
    found = []
    for path in sorted(EXAMPLES_DIR.glob("*.sql")):
        first, _, sql = path.read_text().partition("\n")
        found.append(Example(int(path.name[:2]), first.removeprefix("--").strip(), sql.strip()))
    return tuple(found)


def example(number: int) -> Example:
    """One example by its number. Raises DefinitionError."""
    for each in examples():
        if each.number == number:
            return each
    raise DefinitionError(f"There is no example {number}; see: ./tidegauge sql --examples")


def plain_examples() -> list[dict[str, Any]]:
    """All examples as plain values."""
    return [asdict(one) for one in examples()]


def show_examples(console: Console) -> None:
    """Print all examples."""
    for each in examples():
        console.print(headed(str(each.number), each.question), soft_wrap=True)
        console.print(Syntax(each.sql, "sql", background_color="default", word_wrap=True))
        console.print()
    console.print("Run one with: ./tidegauge sql --examples NUMBER")


def format_of(name: str | None, output: Path | None) -> str:
    """The requested ClickHouse format, by name or by the suffix of the file.

    Names in FORMATS are case-insensitive; other names are passed to ClickHouse. Raises
    DefinitionError if a binary format would go to a terminal.
    """
    suffix = output.suffix.removeprefix(".") if output else ""
    asked = name or (suffix if suffix.lower() in FORMATS else "table")
    found = FORMATS.get(asked.lower(), asked)
    if output is None and found in BINARY and sys.stdout.isatty():
        raise DefinitionError(f"{found} is not for a terminal; add --output FILE.")
    if not re.fullmatch(r"[A-Za-z0-9]+", found):
        raise DefinitionError(f"There is no format {found!r}.")
    return found


def answer(url: StoreUrl | str, sql: str, output_format: str, output: Path | None) -> None:
    """Write the result to standard output, or to a file once it is complete. Says so if a table has
    no rows. Raises QueryError."""
    data = query_bytes(url, sql, output_format)
    if not data:
        print("tidegauge: the answer has no rows.", file=sys.stderr)
    if output is None:
        if sys.stdout.isatty():
            data = harmless(data.decode(errors="replace")).encode()
        sys.stdout.buffer.write(data)
        return
    write_file("--output", output, data)
