"""The verb `sql`: one query, to the terminal or a file, and questions to begin with."""

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.syntax import Syntax

from services.console.files import write_file
from services.runtime.clickhouse import StoreUrl, query_bytes
from services.runtime.definitions import DefinitionError
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
    """A question people ask, and the query that answers it."""

    number: int
    question: str
    sql: str


def examples() -> tuple[Example, ...]:
    """All examples, in their order."""
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
    raise DefinitionError(f"There is no example {number}; list them with: tidegauge sql --examples")


def plain_examples() -> list[dict[str, Any]]:
    """Every question with its query, as plain values."""
    return [asdict(one) for one in examples()]


def show_examples(console: Console) -> None:
    """Every question with its query."""
    for each in examples():
        console.print(f"[bold]{each.number}[/bold]  {each.question}", soft_wrap=True)
        console.print(Syntax(each.sql, "sql", background_color="default", word_wrap=True))
        console.print()
    console.print("Ask one of them with: tidegauge sql --examples NUMBER")


def format_of(name: str | None, output: Path | None) -> str:
    """The ClickHouse format that was asked for, by name or by the suffix of the file.

    Names of FORMATS are read in any case, others are ClickHouse's own. Raises DefinitionError
    where what is no text would go to a terminal.
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
    """Write the answer to standard output, or to a file once it is whole; say that it has no rows
    where a table would show nothing at all. Raises QueryError."""
    data = query_bytes(url, sql, output_format)
    if not data:
        print("tidegauge: the answer has no rows.", file=sys.stderr)
    if output is None:
        sys.stdout.buffer.write(data)
        return
    write_file("--output", output, data)
