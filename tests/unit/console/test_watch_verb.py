"""The verb `watch`: errors, the list, and a watch of some seconds."""

import io
import json
import os
import time
from argparse import Namespace

import pytest
from rich.console import Console

from schemas.protocol import VERDICTS
from schemas.validation_errors import DefinitionError
from schemas.watch import Watch
from services.console import watching
from services.console.terminal import Terminal
from services.console.watching import (
    Following,
    WatchOptions,
    _cluster,
    _followed,
    checked,
    exit_code,
    in_one_run,
    watch,
)
from services.definitions.watches import keep_watch, position_path
from services.readmodel.runs import LatestTrouble
from services.runtime.settings import ServiceSettings
from tests.command_line import parsed
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit


def given(*arguments):
    return WatchOptions(**parsed(["watch", *arguments])[1])


def test_a_login_in_the_address_of_a_registry_is_refused_and_not_repeated():
    registry = "http://me:secret@registry"
    options = given("--infer", "a", "b", "--kafka", "k:9", "--registry", registry)
    with pytest.raises(DefinitionError, match=r"^--registry: url: .* login") as raised:
        watch(options, None, None)
    assert "secret" not in str(raised.value)


def test_logins_come_from_a_file_that_others_cannot_read(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text('[kafka]\nbootstrap = "k:9"\n[kafka.properties]\n"sasl.password" = "s"\n')
    options = given(str(file), "--registry", "http://registry", "--infer", "a", "b")
    file.chmod(0o644)
    with pytest.raises(DefinitionError, match="readable by others"):
        watch(options, None, None)
    file.chmod(0o600)
    found = _cluster(options)
    assert found.kafka.properties == {"sasl.password": "s"}
    assert (found.kafka.bootstrap, found.registry.url) == ("k:9", "http://registry")


def test_watches_are_listed_with_their_topics(tmp_path, capsys):
    settings = ServiceSettings(data=tmp_path)
    sides = {"inputs": [{"topic": "in"}], "outputs": [{"topic": "out"}]}
    keep_watch(tmp_path, Watch.model_validate({"name": "orders", **sides}))
    watch(given(), settings, Console())
    assert capsys.readouterr().out == "orders: in → out, position saved never\n"
    position = position_path(tmp_path, "orders")
    position.parent.mkdir()
    position.touch()
    os.utime(position, (0, 0))
    watch(given("--json"), settings, Console())
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "orders",
            "inputs": ["in"],
            "outputs": ["out"],
            "saved_at": "1970-01-01T00:00:00+00:00",
            "problem": "",
        }
    ]


@pytest.mark.parametrize("text", ["", "{", '{"name": "Ü"}'])
def test_a_watch_whose_file_cannot_be_read_is_listed_as_such(tmp_path, capsys, text):
    (tmp_path / "watches").mkdir()
    (tmp_path / "watches" / "orders.json").write_text(text)
    watch(given(), ServiceSettings(data=tmp_path), Console())
    said = "orders: its file cannot be read; end it with: ./tidegauge watch --end orders\n"
    assert capsys.readouterr().out == said


ORDERS = Watch.model_validate(
    {"name": "orders", "inputs": [{"topic": "in"}], "outputs": [{"topic": "out"}]}
)


def gate(**fields):
    return WatchOptions(**{"duration": 60} | fields)


@pytest.mark.parametrize("duration", [5, 60, 43_200])
@pytest.mark.parametrize("begin_s", [1_800_000_000 - 1, 1_800_000_000, 1_800_001_234])
def test_a_watch_of_some_seconds_is_one_run(monkeypatch, duration, begin_s):
    monkeypatch.setattr("time.time", lambda: begin_s + 0.5)
    found = in_one_run(ORDERS, duration)
    first_s, last_s = begin_s - 600, begin_s + duration + 3_600
    assert first_s // found.run_s == last_s // found.run_s
    assert found.run_s <= 86_400


def test_a_watch_of_some_seconds_that_reads_from_the_beginning_is_one_run():
    found = in_one_run(ORDERS.model_copy(update={"begin": "earliest"}), 60)
    assert found.run_s > time.time() + 60 + 3_600


def test_thresholds_of_the_command_are_added_to_those_of_the_file():
    file = ORDERS.model_copy(update={"thresholds": ("missing <= 0",)})
    assert checked(gate(thresholds=["p99_ms <= 5"]), file).thresholds == (
        "missing <= 0",
        "p99_ms <= 5",
    )


@pytest.mark.parametrize(
    ("fields", "file", "sentence"),
    [
        ({"detach": True}, {}, "--duration and --detach"),
        ({"duration": 4}, {}, "--duration must be from 5 to 43200 seconds."),
        ({"duration": 43_201}, {}, "--duration must be from 5 to 43200 seconds."),
        ({"thresholds": ["wrong <= 0"]}, {}, "--threshold: .*a one_to_one watch has no wrong"),
    ],
)
def test_a_watch_of_some_seconds_refuses(fields, file, sentence):
    with pytest.raises(DefinitionError, match=f"^{sentence}"):
        checked(gate(**fields), ORDERS.model_copy(update=file))


def test_an_option_of_a_gate_needs_a_duration(tmp_path):
    file = tmp_path / "orders.toml"
    file.write_text('name = "orders"\ninputs = [{topic = "in"}]\noutputs = [{topic = "out"}]\n')
    options = given(str(file), "--junit", str(tmp_path / "x.xml"))
    with pytest.raises(DefinitionError, match=r"^--junit needs --duration S; "):
        watch(options, ServiceSettings(data=tmp_path), Console())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--duration 60", "--duration needs a FILE.toml."),
        ("--threshold x", "--threshold needs a FILE.toml."),
        ("--detach", "--detach needs a FILE.toml."),
        ("--report r.json", "--report needs a FILE.toml."),
        ("--end orders --detach", "--detach is for watching a FILE.toml."),
        ("--infer a b --junit x.xml", "--junit is for watching a FILE.toml."),
        ("--kafka k:9", "--kafka is for --infer; a FILE.toml has an address of its own."),
        ("o.toml --registry http://r", "--registry is for --infer; a FILE.toml has an address"),
        ("--through b", "--through is for --infer; a FILE.toml names its topics."),
        ("--infer a b --through b", "--infer and --through: a topic of a path is named twice."),
        ("o.toml --json", "--json is for the list of watches."),
    ],
)
def test_an_option_without_effect_is_refused(tmp_path, arguments, sentence):
    with pytest.raises(DefinitionError) as refused:
        watch(given(*arguments.split()), ServiceSettings(data=tmp_path), Console())
    assert str(refused.value).startswith(sentence)


def test_only_a_watch_is_ended(tmp_path):
    (tmp_path / "watches").mkdir()
    for name in ("notices", "watches/orders"):
        (tmp_path / f"{name}.json").write_text("{}")
    for name in ("../notices", str(tmp_path / "notices"), "nope"):
        with pytest.raises(DefinitionError, match=r"; there are: orders\.$"):
            watch(given("--end", name), ServiceSettings(data=tmp_path), Console())
    watch(given("--end", "orders"), ServiceSettings(data=tmp_path), Console())
    assert [path.name for path in tmp_path.rglob("*.json")] == ["notices.json"]


def judged(passed=(), valid=True, refused=0, **verdicts):
    counts = dict.fromkeys(VERDICTS, 0) | {"exact": 9} | verdicts
    return {
        "valid": valid,
        "thresholds": [{"threshold": text, "passed": good} for text, good in passed],
        "conclusion": {"watch": {"refused": refused}},
        "pipelines": {"orders": {"stages": {"output": {"verdicts": counts}}}},
    }


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (judged(), 0),
        (judged(valid=False, passed=[("output.p99_ms <= 5", False)]), 1),
        (judged(passed=[("output.p99_ms <= 5", True), ("output.missing <= 5", False)]), 3),
        (judged(missing=1), 1),
        (judged(missing=1, passed=[("output.missing <= 5", True)]), 0),
        (judged(missing=1, late=1, passed=[("output.missing <= 5", True)]), 1),
        (judged(missing=1, late=1, passed=[("output.not_exact <= 5", True)]), 0),
        (judged(refused=1), 1),
        (judged(exact=0), 1),
    ],
)
def test_the_exit_code_of_a_gate(report, code):
    assert exit_code(report_of(report)) == code


class Waited:
    """A watch that has problems for a while, one per look, then begins or not."""

    def __init__(self, problems, begins):
        self.watch, self.console = Namespace(name="orders"), Console()
        self.followed = ()
        self._problems, self._begins = problems, begins

    def begin(self, _what): ...

    def wait(self, done, _most_s):
        looks = len(self._problems) + self._begins
        return any(done() for _ in range(looks))

    def new_runs(self, _known):
        return set() if self._problems else {"watch-orders-20261125-220000"}

    def trouble(self):
        return self._problems.pop(0)

    def follow(self, most_s, reason):
        self.followed = most_s, reason


def test_a_gate_tells_what_it_waits_for_once(capsys):
    watched = Waited(["", "topic b does not exist", "topic b does not exist"], begins=True)
    assert not _followed(watched, set(), 15)
    assert capsys.readouterr().out == "It waits, for at most 80 s: topic b does not exist\n"
    assert watched.followed == (15, "topic b does not exist")


@pytest.mark.parametrize("problem", ["topic b does not exist", ""])
def test_a_gate_that_does_not_begin_says_why(problem):
    why = problem or "see the log of the watcher"
    with pytest.raises(DefinitionError, match=f"The watch orders did not begin: {why}"):
        _followed(Waited([problem], begins=False), set(), 15)


def followed(monkeypatch, data, problems, most_s=float("inf"), is_quiet=False):
    """The lines of a watch that has these problems, one per look, and is then interrupted."""
    left = list(problems)

    def check():
        if not left:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching.runs, "last_trouble", lambda *_: left.pop(0))
    monkeypatch.setattr(watching.runs, "recent_outputs", lambda *_: None)
    monkeypatch.setattr(watching.runs, "recent_faults", lambda *_: {"missing": 0})
    monkeypatch.setattr(watching, "TELL_S", 0)
    monkeypatch.setattr(watching, "LOOK_S", 0)
    out = io.StringIO()
    terminal = Terminal(is_quiet=is_quiet, file=out)
    watched = Following(ORDERS, ServiceSettings(data=data), terminal, "http://page", check)
    watched.begin("")
    with pytest.raises(KeyboardInterrupt):
        watched.follow(most_s)
    return out.getvalue().splitlines()


NOTHING = "no output was paired in the last 10 s"
REFUSED = LatestTrouble("in", "Broker: Topic authorization failed")


def test_a_watch_tells_its_problems_once(monkeypatch, tmp_path):
    silent = LatestTrouble("", "it has returned no end offsets for 30 s")
    assert followed(monkeypatch, tmp_path, [REFUSED, REFUSED, silent]) == [
        "The watch orders starts: in → out",
        "Watch it at http://page",
        "Problem: in: Broker: Topic authorization failed",
        NOTHING,
        NOTHING,
        "Problem: it has returned no end offsets for 30 s",
        NOTHING,
    ]


@pytest.mark.parametrize(("most_s", "figures"), [(float("inf"), [NOTHING]), (60, [])])
def test_a_quiet_watch_tells_problems_and_results_only(monkeypatch, tmp_path, most_s, figures):
    lines = followed(monkeypatch, tmp_path, [REFUSED], most_s, is_quiet=True)
    assert lines == ["Problem: in: Broker: Topic authorization failed", *figures]
