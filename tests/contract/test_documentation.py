"""Every command, name and link in README and docs exists."""

import ast
import importlib.util
import itertools
import re
import signal
import tomllib
from pathlib import Path

import click
import pytest

from deploy.local.startup import known_settings
from schemas.protocol import Workload
from services.console.__main__ import main
from services.definitions import engines
from services.definitions.domains import domain_names
from services.definitions.pipelines import PIPELINES_DIR, load_pipeline
from services.definitions.workloads import chosen_workload
from services.external_pipeline import __main__ as external
from services.external_pipeline.sockets import __main__ as sockets
from services.runner import processes
from services.runtime.settings import ROOT
from tests.command_line import parsed
from tests.contract.service_settings import PREFIX
from tests.documentation import COMMANDS, PAGES, blocks, words_of
from tests.end_to_end.documented import (
    CHANGES,
    RULES,
    Done,
    measures,
    of_the_machine,
    rule_of,
    shortened,
    without_figures,
)
from tests.faults.killed_engines import RESULTS

pytestmark = pytest.mark.contract


@pytest.fixture(autouse=True)
def engine_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """As described on the page that names one of its pipelines."""
    monkeypatch.setenv(engines.FOLDERS, "examples")


# Names that readers replace, or create by following the page.
THEIRS = {"mine", "path/to/evening.toml", "path/to/my.toml", "NAME", "A,B"}
# External programs, which need not be installed on this machine.
FOREIGN = {"sed", "rm", "curl", "uvx", "docker", "kubectl", "eval"}


def check_tidegauge(words: list[str], mounted: Path = PIPELINES_DIR) -> None:
    """mounted: folder with additional pipelines."""
    if words[0] == "test":
        return
    verb, options = parsed(words)  # raises, and so fails, for invalid arguments
    if verb in ("run", "workloads"):
        name, domain = options["workload" if verb == "run" else "name"], options["domain"]
        if name and name not in THEIRS:
            chosen_workload(name, domain if domain in domain_names() else None)
    if verb in ("run", "pipelines"):
        names = options["pipeline" if verb == "run" else "name"]
        for name in (names or "").split(","):
            if name and not {name, names} & THEIRS:
                is_mounted = (mounted / f"{name}.toml").is_file()
                load_pipeline(name, mounted if is_mounted else PIPELINES_DIR)


def check_paths(words: list[str]) -> None:
    """Check files named in options of other programs."""
    for option, value in itertools.pairwise(words):
        if option in ("-f", "-k", "-r"):
            assert (ROOT / value).exists(), value
    for word in words:
        if word.startswith("--from-file=") and "secrets" not in word:
            assert (ROOT / word.removeprefix("--from-file=")).exists(), word
    if words[:2] == ["docker", "compose"] and "console" in words:
        mounted = ROOT / "deploy" / "compose" / "pipelines"
        check_tidegauge(words[words.index("console") + 1 :], mounted)


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_is_one_that_there_is(page: str, line: str) -> None:
    words = words_of(line)
    program = words[0]
    if program == "./tidegauge":
        check_tidegauge(words[1:])
    elif program == "sh":
        assert (ROOT / words[1]).is_file()
    elif program == ".venv/bin/python":
        is_module = words[1] == "-m" and importlib.util.find_spec(words[2]) is not None
        assert is_module or (ROOT / words[1]).is_file()
    else:
        assert program in FOREIGN, f"{page}: {line}"
        check_paths(words)


def test_there_are_commands_on_every_page_for_newcomers() -> None:
    assert len(COMMANDS) > 60
    pages = {page for page, _line in COMMANDS}
    assert {"README.md", "faq.md", "reading-a-report.md", "scale-out.md"} <= pages


def test_a_wrong_command_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        check_tidegauge(["run", "--no-such-option"])
    with pytest.raises(ValueError, match="no-such-pipeline"):
        check_tidegauge(["run", "--pipeline", "no-such-pipeline"])
    with pytest.raises(AssertionError):
        check_paths(["kubectl", "apply", "-f", "no/such.yaml"])


def test_every_command_has_a_rule_by_which_a_test_runs_it_and_every_rule_a_command() -> None:
    used = {rule_of(page, line) for page, line in COMMANDS}
    assert [rule for rule in RULES if rule not in used] == []
    for change in CHANGES:
        assert any(re.search(change.command, line) for _page, line in COMMANDS), change
    with pytest.raises(LookupError, match="no rule says how a test runs: make coffee"):
        rule_of("README.md", "make coffee")


LATE = "The generator was late: p99 send delay 61.5 ms, allowed 50 ms."


@pytest.mark.parametrize(
    ("code", "said", "accepted"),
    [
        (0, "VALID: every expected output was published once, exact and in time.", True),
        (0, "", False),
        (1, f"INVALID: {LATE}", True),
        (1, f"INVALID: {LATE} X.", False),
        (1, "INVALID: No rate was sustained: parse: median latency rises by 90 ms a second.", True),
        (1, "INVALID: No rate was sustained: parse: 3 outputs are missing.", False),
        (1, "INVALID: store failed: it ended with code 1.", False),
        (1, f"INVALID: {LATE} spark-realtime published no measured output of join, parse.", True),
        (1, "INVALID: spark-realtime published no measured output of join, parse.", False),
        (1, f"run 1 of 2: INVALID: {LATE}\nrun 2 of 2: VALID: all", True),
        (1, f"run 1 of 2: INVALID: {LATE}\nVALID, but the ledger is not clean: 3 missing.", False),
        (1, f"run 1 of 2: INVALID: store failed.\nINVALID: {LATE}", False),
        (1, "VALID, but the ledger is not clean: 3 missing.", False),
        (2, "INVALID: CPU steal was 40%, allowed 25%.", False),
    ],
)
def test_a_run_that_a_test_runs_may_fail_for_what_the_machine_did_and_for_nothing_else(
    code: int, said: str, accepted: bool
) -> None:
    assert measures(Done(code, f"how it went\n{said}\n")) is accepted


def test_a_study_may_lack_figures_for_what_the_machine_did_and_for_nothing_else() -> None:
    late = f"latency, Flink, run 20261124-031836-1f2e is INVALID: {LATE}"
    failed = "bursts, Storm, run 20261124-032001-77aa gave no figure: storm cannot start."
    assert without_figures(f"# Study\n\nWords.\n\n{late}\n") == [LATE]
    assert of_the_machine(*without_figures(late))
    assert not of_the_machine(*without_figures(f"{late}\n\n{failed}"))
    assert not of_the_machine(*without_figures("# Study"))


@pytest.mark.parametrize("path", sorted((ROOT / "workloads").glob("*.toml")), ids=lambda p: p.stem)
def test_a_workload_that_was_shortened_for_the_pages_is_one(path: Path) -> None:
    workload = Workload.model_validate(tomllib.loads(shortened(path.stem, path.read_text())))
    assert workload.phases.total_s <= 32
    assert workload.keep_up_s == 4


CHEAP = [
    line
    for _page, line in COMMANDS
    if words_of(line)[1:2]
    and words_of(line)[1] in ("workloads", "pipelines", "engines", "completion")
    if words_of(line)[0] == "./tidegauge" and not set(words_of(line)) & THEIRS
]


@pytest.mark.parametrize("line", dict.fromkeys([*CHEAP, "./tidegauge sql --examples"]))
def test_commands_that_only_tell_are_run(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    try:
        assert main(words_of(line)[1:]) == 0
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
    assert capsys.readouterr().out.strip()


def told_to_programs() -> set[str]:
    """Environment variables of external programs, and those for custom engines."""
    text = "".join(Path(str(each.__file__)).read_text() for each in (external, sockets))
    return {engines.FOLDERS, processes.COLLECTOR, *re.findall(rf'"({PREFIX}[A-Z_]+)"', text)}


def known_names() -> set[str]:
    """Names of settings, of variables that `./tidegauge` itself and compose.yaml read, and of those
    set for programs."""
    script = set(re.findall(rf"{PREFIX}[A-Z_]+", (ROOT / "tidegauge").read_text()))
    compose = (ROOT / "deploy" / "compose" / "compose.yaml").read_text()
    containers = set(re.findall(rf"\$\{{({PREFIX}[A-Z_]+):-", compose))
    settings = {f"{PREFIX}{name.upper()}" for name in known_settings()}
    return settings | script | containers | told_to_programs() | of_tests()


def of_tests() -> set[str]:
    """Environment variables of benchmarks and tests."""
    files = (ROOT / "tests").rglob("*.py")
    read = rf'environ(?:\.get\(|\[)"({PREFIX}[A-Z_]+)"|\b(?:get|names)\("({PREFIX}BENCH_[A-Z_]+)"'
    found = {name for file in files for hit in re.findall(read, file.read_text()) for name in hit}
    return {RESULTS} | found - {""}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_that_a_page_names_is_one(page: Path) -> None:
    named = set(re.findall(rf"{PREFIX}[A-Z_]+[A-Z]", page.read_text()))
    assert named - known_names() - {"TIDEGAUGE_CONFIG"} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_picture_of_a_page_is_there(page: Path) -> None:
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_workload_and_the_stage_to_copy_are_valid() -> None:
    (text,) = blocks(ROOT / "docs" / "write-a-workload.md", "toml")
    workload = Workload.model_validate(tomllib.loads(text))
    assert (workload.name, workload.phases.total_s) == ("evening", 105)
    (code,) = blocks(ROOT / "docs" / "write-a-stage.md", "python")
    function = ast.parse(code).body[-1]
    assert isinstance(function, ast.FunctionDef)
