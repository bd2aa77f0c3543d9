"""Output on a terminal and elsewhere."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from schemas.events import FigureColumns, PhaseStarted, event_of
from services.console.__main__ import main
from services.console.progress import LiveView, NoView, PlainView, RunProgress, open_view
from services.console.terminal import Terminal, heights, teller
from services.console.verbs import tidegauge
from services.runtime.clickhouse import QueryError
from services.runtime.settings import ROOT
from tests.command_line import carried_out, noted
from tests.unit.requests import a_lifecycle_event, a_request, an_event

pytestmark = pytest.mark.unit


def test_an_error_of_the_kafka_client_is_told_in_its_own_words(capsys) -> None:
    def fail() -> None:
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    assert main(["runs"], fail) == 2
    told = capsys.readouterr().err
    assert told == (
        "tidegauge: Kafka does not do what the command needs: Local: All broker connections are"
        " down.\n"
    )


def a_terminal(width: int = 120, environ: Mapping[str, str] | None = None) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        height=30,
        color_system="standard",
        _environ=environ or {"TERM": "xterm"},
    )


def a_measured_run() -> RunProgress:
    progress = RunProgress(a_request())
    progress.add(PhaseStarted(run_id=progress.measured, phase="measure", start_ms=0, end_ms=1))
    for second, value in enumerate((8, 4, 2), start=1):
        fields = an_event(
            pipeline="spark-realtime", stage="join", definition="latest", phase="measure",
            second=1000 * second, latencies_ms=[value], counts=[5],
        )  # fmt: skip
        progress.add(FigureColumns("results.latency", fields))
    detail = {"steady": False, "moving": ["spark-realtime join: p50 went from 8 to 2 ms"]}
    progress.add(event_of("results.lifecycle", a_lifecycle_event("steadiness", json.dumps(detail))))
    return progress


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_has_figures_a_heights_and_whether_it_moves() -> None:
    console = a_terminal()
    with open_view(console) as view:
        assert isinstance(view, LiveView)
        view.show(a_measured_run())
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(console))
    (row,) = {line.strip() for line in text.splitlines() if " join " in line}
    assert row.split() == ["spark-realtime", "join", "4", "8", "█▅▃", "moves", "0", "0"]
    (other,) = {line.strip() for line in text.splitlines() if " parse " in line}
    assert other.split() == ["spark-realtime", "parse", "–", "–", "steady", "0", "0"]
    assert "not steady yet" in text


def test_it_draws_over_what_it_has_drawn() -> None:
    console = a_terminal()
    with open_view(console) as view:
        for _ in range(3):
            view.show(a_measured_run())
    assert "\x1b[1A" in shown(console)  # cursor up


def test_a_narrow_terminal_has_no_heights() -> None:
    console = a_terminal(width=99)
    with open_view(console) as view:
        view.show(a_measured_run())
    assert "█" not in shown(console)


def test_elsewhere_there_are_plain_lines() -> None:
    console = Console(file=io.StringIO())
    with open_view(console) as view:
        assert isinstance(view, PlainView)
        view.show(a_measured_run())
    assert shown(console) == "measuring, 0 s left · not steady yet · p50/p99 ms: join 4/8\n"
    assert isinstance(open_view(a_terminal(environ={"TERM": "dumb"})), PlainView)


def test_a_quiet_terminal_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(is_quiet=True)
    assert isinstance(open_view(terminal), NoView)
    teller(terminal)("starting kafka")
    terminal.print("the report")
    assert capsys.readouterr().out == "the report\n"


def test_colours_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert not Terminal().no_color
    assert Terminal(has_color=False).no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal().no_color


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0, 0], "▁▁"), ([1, 2, 4, 8], "▂▃▅█"), ([9, 8, 1], "█▂"), ([-3, 8], "▁█")],
)
def test_a_heights_goes_from_nothing_to_the_highest(values: list[float], drawn: str) -> None:
    assert heights(values, 2 if len(values) == 3 else 9) == drawn


def test_a_heights_of_a_terminal_without_unicode() -> None:
    assert heights([0, 4, 8], 9, "ascii") == "_=#"


def test_options_of_the_terminal_are_taken_before_and_after_the_verb() -> None:
    for words in (
        ["-q", "--no-color", "--data", "a", "runs"],
        ["--data", "b", "runs", "--quiet", "--no-color", "--data", "a"],
    ):
        assert noted(words) == {"quiet": True, "no_color": True, "data": Path("a")}
    assert noted(["runs"]) == {}


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["workloads"], "name", "latency"),
        (["pipelines"], "engine", "spark"),
        (["domains"], "name", "gem_packs"),
        (["engines"], "state", "needs no installation"),
        (["suites"], "name", "default"),
        (["study"], "name", "ospbench"),
        (["sql", "--examples"], "number", 3),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_is_listed_is_there_as_json(words: list[str], key: str, value: object) -> None:
    done = carried_out([*words, "--json"])
    assert done.exit_code == 0
    assert value in [row[key] for row in json.loads(done.stdout)]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["workloads", "latency"], "phases"),
        (["pipelines", "spark-realtime"], "stages"),
        (["domains", "traffic"], "stages"),
        (["engines", "calibration"], "abilities"),
        (["suites", "default"], "pace"),
    ],
)
def test_one_of_them_is_there_in_full(words: list[str], field: str) -> None:
    found = json.loads(carried_out([*words, "--json"]).stdout)
    assert found["name"] == words[1]
    assert field in found


def test_errors_go_to_standard_error_and_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "services.console"]
    done = subprocess.run(
        [*command, "workloads", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tidegauge: There is no workload 'nothing'")
    done = subprocess.run(
        ["sh", "-c", '"$@" | true', "sh", *command, "workloads", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_an_error_that_quotes_a_record_does_not_operate_the_terminal(monkeypatch, capsys):
    def refused() -> None:
        raise QueryError("Cannot parse \x1b]0;x\x07")

    monkeypatch.setitem(tidegauge.commands, "sql", click.Command("sql", callback=refused))
    assert main(["sql"]) == 2
    assert capsys.readouterr().err == "tidegauge: Cannot parse \ufffd]0;x\ufffd\n"
