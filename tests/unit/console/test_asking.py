"""The verb `sql`: examples, formats, files."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from schemas.validation_errors import DefinitionError
from services.console import listing
from services.console.arguments import build_parser
from services.console.verbs import VERBS
from services.runtime.clickhouse import StoreUrl
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit


def test_examples_are_numbered_and_have_question_and_query():
    found = listing.examples()
    assert [example.number for example in found] == list(range(1, 28))
    assert found[0].question == "Which runs are there, and which of them are valid?"
    assert all(example.sql.split()[0] in ("SELECT", "WITH") for example in found)


def test_an_example_that_is_not_there_is_said_so():
    with pytest.raises(DefinitionError, match="no example 99"):
        listing.example(99)


@pytest.mark.parametrize(
    ("name", "output", "expected"),
    [
        (None, None, "PrettyCompact"),
        ("CSV", None, "CSVWithNames"),
        ("JSONCompact", None, "JSONCompact"),
        (None, Path("a.parquet"), "Parquet"),
        (None, Path("a.out"), "PrettyCompact"),
        ("tsv", Path("a.parquet"), "TSVWithNames"),
    ],
)
def test_the_format_is_the_named_one_or_the_files(name, output, expected):
    assert listing.format_of(name, output) == expected


@pytest.mark.parametrize(
    ("rows", "said"), [(b"", "tidegauge: the answer has no rows.\n"), (b"1", "")]
)
def test_an_answer_without_rows_is_said_to_have_none(rows, said, monkeypatch, capfdbinary):
    monkeypatch.setattr(listing, "query_bytes", lambda *_asked: rows)
    listing.answer("http://h:5", "SELECT 1", "PrettyCompact", None)
    shown = capfdbinary.readouterr()
    assert (shown.out, shown.err.decode()) == (rows, said)


ODD = b"\x1b]52;c;QQ==\x07\ta\r\x7f\xc2\x9b\x9b \xc3\xa9\n"


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [(False, ODD), (True, "\ufffd]52;c;QQ==\ufffd\ta\ufffd\ufffd\ufffd\ufffd é\n".encode())],
    ids=["pipe", "terminal"],
)
def test_records_do_not_operate_the_terminal(is_terminal, shown, monkeypatch, capfdbinary):
    monkeypatch.setattr(listing, "query_bytes", lambda *_asked: ODD)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    listing.answer("http://h:5", "SELECT 1", "TSVWithNames", None)
    assert capfdbinary.readouterr().out == shown


def test_records_are_written_to_a_file_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "query_bytes", lambda *_asked: ODD)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    listing.answer("http://h:5", "SELECT 1", "TSVWithNames", tmp_path / "a.tsv")
    assert (tmp_path / "a.tsv").read_bytes() == ODD


def test_what_is_no_format_at_all_is_refused():
    with pytest.raises(DefinitionError, match="no format"):
        listing.format_of("a b", None)


def test_the_command_line_tells_the_list_from_one_example():
    parser = build_parser()
    assert parser.parse_args(["sql", "--examples"]).examples == 0
    assert parser.parse_args(["sql", "--examples", "7"]).examples == 7
    assert parser.parse_args(["sql", "SELECT 1"]).examples is None


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sql --examples --output x.csv", "--output and --format need a query"),
        ("sql --examples --format csv", "--output and --format need a query"),
        ("grafana verify --url http://g --user me", "--clickhouse and --user apply to"),
        ("grafana verify --url http://g --clickhouse http://c", "--clickhouse and --user apply to"),
    ],
)
def test_an_option_without_effect_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, sentence: str
):
    monkeypatch.setenv("GRAFANA_TOKEN", "token")
    options = build_parser().parse_args(line.split())
    with pytest.raises(DefinitionError, match=sentence):
        VERBS[options.verb](options, ServiceSettings(data=tmp_path), Console())


def test_an_address_shows_without_its_password(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "clickhouse-reader").write_text("pass\n")
    url = StoreUrl.of("h", 5, tmp_path)
    assert str(url) == f"{url}" == "http://h:5"
    assert url.headers() == {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": "pass"}
    assert url.headers("admin") == {}
