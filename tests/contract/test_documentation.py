"""Every command, name and link in README and docs is one that there is."""

import ast
import importlib.util
import itertools
import re
import shlex
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.broker import BrokerSettings
from deploy.local.supervisor import SupervisionSettings
from schemas.pipeline import Pipeline
from schemas.protocol import Workload
from services.console.__main__ import main
from services.console.arguments import build_parser
from services.runtime.definitions import load_pipeline, load_workload
from services.runtime.settings import ROOT
from services.spark_pipeline import external
from tests.contract.service_settings import PREFIX, SETTINGS

pytestmark = pytest.mark.contract

PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PARSER = build_parser()
# Names that a reader is to replace, or makes by following the page.
THEIRS = {"mine", "path/to/evening.toml", "path/to/my.toml", "NAME", "A,B"}
# Programs of others, which this machine need not have.
FOREIGN = {"sed", "rm", "curl", "uvx", "docker", "kubectl", "eval"}


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language, indented ones in lists too."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(), re.M | re.S)
    return [re.sub(rf"^{indent}", "", text, flags=re.M) for indent, text in found]


def commands(page: Path) -> Iterator[str]:
    """Command lines of the page: in blocks, in indented text, and whole ones inside sentences."""
    for block in blocks(page, "sh"):
        yield from (line for line in block.splitlines() if line.strip())
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    yield from re.findall(r"^    (\./tidegauge .*)$", text, re.M)
    yield from re.findall(r"`((?:TIDEGAUGE_\w+=\S+ )*\./tidegauge [^`]+)`", text)


COMMANDS = [(page.name, line) for page in PAGES for line in dict.fromkeys(commands(page))]


def words_of(line: str) -> list[str]:
    """The words of a command without the variables before it, comment and redirection."""
    line = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line).partition(" > ")[0]
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    return words


def check_tidegauge(words: list[str]) -> None:
    if words[0] == "test":
        return
    options = PARSER.parse_args(words)  # exits, and so fails, when it does not understand
    if options.verb in ("run", "workloads"):
        name = options.workload if options.verb == "run" else options.name
        if name and name not in THEIRS:
            load_workload(name)
    if options.verb in ("run", "pipelines"):
        names = options.pipeline if options.verb == "run" else options.name
        for name in (names or "").split(","):
            if name and not {name, names} & THEIRS and not name.startswith("/etc/tidegauge/"):
                load_pipeline(name)


def check_paths(words: list[str]) -> None:
    """Files that options of other programs name."""
    for option, value in itertools.pairwise(words):
        if option in ("-f", "-k", "-r"):
            assert (ROOT / value).exists(), value
    for word in words:
        if word.startswith("--from-file=") and "secrets" not in word:
            assert (ROOT / word.removeprefix("--from-file=")).exists(), word
    if words[:2] == ["docker", "compose"] and "console" in words:
        check_tidegauge(words[words.index("console") + 1 :])


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_is_one_that_there_is(page: str, line: str) -> None:
    words = words_of(line)
    program = words[0]
    if program == "./tidegauge":
        check_tidegauge(words[1:])
    elif program == "sh":
        assert (ROOT / words[1]).is_file()
    elif program == ".venv/bin/python":
        assert words[1] == "-m"
        assert importlib.util.find_spec(words[2]) is not None
    else:
        assert program in FOREIGN, f"{page}: {line}"
        check_paths(words)


def test_there_are_commands_on_every_page_for_newcomers() -> None:
    assert len(COMMANDS) > 60
    pages = {page for page, _line in COMMANDS}
    assert {"README.md", "faq.md", "reading-a-report.md", "scale-out.md"} <= pages


def test_a_wrong_command_would_be_noticed() -> None:
    with pytest.raises(SystemExit):
        check_tidegauge(["run", "--no-such-option"])
    with pytest.raises(ValueError, match="no-such-pipeline"):
        check_tidegauge(["run", "--pipeline", "no-such-pipeline"])
    with pytest.raises(AssertionError):
        check_paths(["kubectl", "apply", "-f", "no/such.yaml"])


CHEAP = [
    line
    for _page, line in COMMANDS
    if words_of(line)[1:2] and words_of(line)[1] in ("workloads", "pipelines", "completion")
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
    """Variables that external programs find in their environment."""
    return set(re.findall(rf'"({PREFIX}[A-Z_]+)"', Path(str(external.__file__)).read_text()))


def known_names() -> set[str]:
    """Names of settings, of what `./tidegauge` itself reads, and of what programs are told."""
    kinds = (*SETTINGS.values(), BrokerSettings, SupervisionSettings)
    fields = {name for settings in kinds for name in settings.model_fields}
    script = set(re.findall(rf"{PREFIX}[A-Z_]+", (ROOT / "tidegauge").read_text()))
    return {f"{PREFIX}{name.upper()}" for name in fields} | script | told_to_programs()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_that_a_page_names_is_one(page: Path) -> None:
    named = set(re.findall(rf"{PREFIX}[A-Z_]+[A-Z]", page.read_text()))
    assert named - known_names() - {"TIDEGAUGE_CONFIG"} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_picture_of_a_page_is_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_workload_and_the_stage_to_copy_are_valid() -> None:
    (text,) = blocks(ROOT / "docs" / "write-a-workload.md", "toml")
    workload = Workload.model_validate(tomllib.loads(text))
    assert (workload.name, workload.phases.total_s) == ("evening", 105)
    (code,) = blocks(ROOT / "docs" / "write-a-stage.md", "python")
    function = ast.parse(code).body[-1]
    assert isinstance(function, ast.FunctionDef)
    assert "external" in Pipeline.model_fields
