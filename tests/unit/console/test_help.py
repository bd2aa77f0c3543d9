"""Help with commands to copy, errors, and completion as in a shell."""

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import click
import pytest

from schemas.content import TimeUnit
from schemas.protocol import CITATION
from schemas.workload import KillTarget, Transport
from services.console.__main__ import main
from services.console.arguments import Verb
from services.console.series import RunOptions
from services.console.verbs import tidegauge
from services.console.watching import WatchOptions
from services.runtime.settings import ROOT
from tests.command_line import carried_out, options_of, parsed

pytestmark = pytest.mark.unit

VERBS = tidegauge.commands


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_example_is_a_command_of_its_verb(name: str) -> None:
    verb = VERBS[name]
    assert isinstance(verb, Verb)
    assert verb.examples
    for command, why in verb.examples:
        assert why
        inner = (
            command.removeprefix('eval "$(').removesuffix(')"') if "eval" in command else command
        )
        words = shlex.split(inner.partition(" > ")[0])
        assert parsed(words[words.index("./tidegauge") + 1 :])[0] == name


@pytest.mark.parametrize("name", sorted(VERBS))
def test_the_help_of_a_verb_shows_what_it_does_its_options_and_examples(name: str) -> None:
    shown = carried_out([name, "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith(f"Usage: tidegauge {name}")
    assert (VERBS[name].help or "").splitlines()[0] in shown.output
    assert "\nExamples:\n  # " in shown.output
    assert carried_out([name, "-h"]).output == shown.output


def test_help_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    widths = []
    for columns in ("60", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["run", "--help"]) == 0
        text = capsys.readouterr().out.partition("Examples:")[0]
        widths.append(max(map(len, text.splitlines())))
    assert 50 < widths[0] <= 60 < 90 < widths[1] <= 100


def test_the_functions_get_the_options_of_the_parser() -> None:
    assert options_of(VERBS["run"]) == {each.name for each in fields(RunOptions)}
    assert options_of(VERBS["watch"]) == {each.name for each in fields(WatchOptions)}


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("time_unit", get_args(TimeUnit)),
        ("transport", get_args(Transport)),
        ("kill", get_args(KillTarget)),
        ("profile", (CITATION,)),
    ],
)
def test_the_choices_are_those_of_the_schemas(option: str, values: tuple[str, ...]) -> None:
    (found,) = (each.type for each in VERBS["run"].params if each.name == option)
    assert isinstance(found, click.Choice)
    assert tuple(found.choices) == values


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("rnu", "tidegauge: No such command 'rnu'. Did you mean 'run'?"),
        ("--qiet runs", "tidegauge: No such option: --qiet Did you mean --quiet?"),
        (
            "run --duratoin 5",
            "tidegauge run: No such option: --duratoin (Possible options: --domain, --duration, ",
        ),
        ("run --du 5", "tidegauge run: No such option: --du"),
        ("run --rate x", "tidegauge run: Invalid value for '--rate': 'x' is not a valid float."),
        ("run --report --floor", "tidegauge run: Option '--report' requires an argument."),
        ("evaluate", "tidegauge evaluate: Missing argument 'RUN_ID'."),
        ("runs --limit 0", "tidegauge runs: Invalid value for '--limit': 0 is not in the range"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(sentence)
    assert len(shown.err.splitlines()) == 1


def test_without_a_verb_the_help_is_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Usage: tidegauge [OPTIONS] VERB")


def test_help_waits_for_click_alone() -> None:
    program = (
        "import sys; from services.console.__main__ import main\n"
        "main(['run', '--help']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = set(done.stderr.split())
    assert {"click", "services.console.verbs.results"} <= modules
    assert not modules & {"pydantic", "rich", "structlog", "confluent_kafka", "psutil"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command as a file that a completion script calls, as ./tidegauge is."""
    path = tmp_path_factory.mktemp("completion") / "tidegauge"
    path.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "
        '-m services.console "$@"\n'
    )
    path.chmod(0o755)
    return path


def completed(program: Path, *words: str) -> set[str]:
    """The completions that bash offers for the last word; `default`: files."""
    script = carried_out(["completion", "bash"]).output
    line = " ".join(shlex.quote(word) for word in words)
    test = (
        f"{script}\ncompopt() {{ echo $2; }}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        f"_tidegauge_completion {shlex.quote(str(program))}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", test], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_verbs_options_and_names(program: Path) -> None:
    assert completed(program, "tidegauge", "ru") == {"run", "runs"}
    assert {"up", "down", "sql"} <= completed(program, "tidegauge", "")
    assert "--data" in completed(program, "tidegauge", "--")
    assert completed(program, "tidegauge", "run", "--du") == {"--duration"}
    assert completed(program, "tidegauge", "run", "lat") == {"latency"}
    assert "spark-microbatch" in completed(program, "tidegauge", "run", "--pipeline", "spark-m")
    assert completed(program, "tidegauge", "run", "--rate", "") == set()  # any number
    assert completed(program, "tidegauge", "run", "--report", "") == {"default"}
    assert completed(program, "tidegauge", "completion", "z") == {"zsh"}
    assert completed(program, "tidegauge", "--data", "x", "status", "--j") == {"--json"}


@pytest.mark.parametrize(
    ("shell", "call", "register"),
    [
        ("bash", "bash_complete $1)", "-F _tidegauge_completion tidegauge"),
        ("zsh", "zsh_complete $words[1])", "|| { autoload -U compinit && compinit }"),
        ("fish", "(commandline -opc)[1])", "--command tidegauge"),
    ],
)
def test_a_script_calls_the_program_as_it_was_typed(shell: str, call: str, register: str) -> None:
    script = carried_out(["completion", shell]).output
    assert f"_TIDEGAUGE_COMPLETE={shell}_complete" in script
    assert call in script
    assert register in script
    assert "commands[tidegauge]" not in script


def test_the_program_answers_a_completion_script_of_fish(program: Path) -> None:
    variables = {"COMP_WORDS": "tidegauge run --fl", "COMP_CWORD": "--fl"}
    variables["_TIDEGAUGE_COMPLETE"] = "fish_complete"
    done = subprocess.run(
        [program], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("plain,--floor\t")
