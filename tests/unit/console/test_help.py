"""Help with commands to copy, and completion as in a shell."""

import io
import shlex
import shutil
import subprocess
from contextlib import redirect_stdout

import pytest

from services.console.arguments import build_parser, script, verbs_of
from services.console.help import HELP
from services.console.verbs import VERBS

pytestmark = pytest.mark.unit

PARSER = build_parser()
NAMES = {"run.pipeline": ("spark-realtime", "spark-microbatch"), "run.workload": ("latency",)}


def parsed(command: str) -> str:
    """The verb of a complete command line, ignoring leading variables and trailing redirections."""
    words = shlex.split(command.partition(" > ")[0], comments=True)
    words = words[words.index("./tidegauge") + 1 :]
    return str(PARSER.parse_args(words).verb)


def test_every_verb_has_help_and_can_be_carried_out() -> None:
    verbs = set(verbs_of(PARSER))
    assert verbs - {"test"} == set(VERBS)
    assert verbs - set(HELP) == set(), "services/console/help.py says nothing of these"


@pytest.mark.parametrize("verb", sorted(HELP))
def test_every_example_is_a_command_of_its_verb(verb: str) -> None:
    for command, why in HELP[verb].examples:
        assert why
        inner = (
            command.removeprefix('eval "$(').removesuffix(')"') if "eval" in command else command
        )
        if verb == "test":
            assert inner.split()[:2] == ["./tidegauge", "test"]
        else:
            assert parsed(inner) == verb


@pytest.mark.parametrize("verb", sorted(verbs_of(PARSER)))
def test_the_help_of_a_verb_shows_what_it_does_its_options_and_examples(verb: str) -> None:
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit, match="0"):
        PARSER.parse_args([verb, "--help"])
    assert f"usage: tidegauge {verb}" in out.getvalue()
    assert "examples:" in out.getvalue()
    assert HELP[verb].text.split()[0] in out.getvalue()


def completed(*words: str) -> set[str]:
    """The completions bash offers for the last word."""
    line = " ".join(shlex.quote(word) for word in words)
    program = (
        f"{script('bash', PARSER, NAMES)}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        "_tidegauge; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_verbs_options_and_names() -> None:
    assert completed("tidegauge", "ru") == {"run", "runs"}
    assert {"up", "down", "sql", "--data"} <= completed("tidegauge", "")
    assert completed("tidegauge", "run", "--du") == {"--duration"}
    assert completed("tidegauge", "run", "la") == {"latency"}
    assert completed("tidegauge", "run", "--pipeline", "spark-m") == {"spark-microbatch"}
    assert completed("tidegauge", "run", "--rate", "") == set()  # any number
    assert completed("tidegauge", "completion", "z") == {"zsh"}
    assert completed("tidegauge", "--data", "x", "status", "--j") == {"--json"}


def test_zsh_gets_the_same_by_its_emulation_of_bash() -> None:
    made = script("zsh", PARSER, NAMES)
    assert "bashcompinit" in made
    assert made.endswith("complete -o default -F _tidegauge tidegauge ./tidegauge\n")
