"""The verb `sql`: examples, formats, files."""

import sys
from pathlib import Path

import pytest

from schemas.validation_errors import DefinitionError
from services.console import listing
from services.runtime.clickhouse import StoreUrl
from services.runtime.settings import ServiceSettings
from tests.command_line import carried_out, parsed

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
    for words, examples in ((["--examples"], 0), (["--examples", "7"], 7), (["SELECT 1"], None)):
        assert parsed(["sql", *words])[1]["examples"] == examples


@pytest.mark.parametrize("query", ["-- the newest = first\nSELECT 1", "--json is not here", "- 1"])
def test_a_query_may_begin_with_a_comment(query):
    for words in ([query, "--format", "csv"], ["--format=csv", query]):
        options = parsed(["sql", *words])[1]
        assert (options["query"], options["format"], options["as_json"]) == (query, "csv", False)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sql --examples --output x.csv", "--output and --format need a query"),
        ("sql --examples --format csv", "--output and --format need a query"),
        ("sql SELECT --examples 3", "Give a query or --examples, not both."),
        ("sql", "Give a query, or see: ./tidegauge sql --examples"),
        ("report --json --markdown", "Give --json or --markdown, not both."),
        ("report report.html", "report.html is not a run id; --json and"),
        ("workloads --domain flights", "--domain needs the NAME of a workload."),
        ("engines --install", "--install needs the name of an engine."),
    ],
)
def test_an_option_without_effect_is_refused(tmp_path: Path, line: str, sentence: str):
    done = carried_out(line.split(), ServiceSettings(data=tmp_path))
    assert done.exit_code == 2
    assert f"Error: {sentence}" in done.stderr


@pytest.mark.parametrize("option", ["--user me", "--clickhouse http://c"])
def test_a_check_of_grafana_takes_no_option_of_a_push(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
):
    monkeypatch.setenv("GRAFANA_TOKEN", "token")
    words = f"grafana verify --url http://g {option}".split()
    with pytest.raises(DefinitionError, match="--clickhouse and --user apply to"):
        carried_out(words, ServiceSettings(data=tmp_path))


def test_an_address_shows_without_its_password(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "clickhouse-reader").write_text("pass\n")
    url = StoreUrl.of("h", 5, tmp_path)
    assert str(url) == f"{url}" == "http://h:5"
    assert url.headers() == {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": "pass"}
    assert url.headers("admin") == {}
