"""The GitHub action and the program that it starts use the same names."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

FOLDER = ROOT / "deploy" / "github"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text())
(STEP,) = ACTION["runs"]["steps"]
PROGRAM = (FOLDER / "run.sh").read_text()
# Available in every job.
OF_GITHUB = {"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"}


def test_the_variables_of_the_step_are_those_that_the_program_reads() -> None:
    read = set(re.findall(r"\$\{?([A-Z][A-Z_]*)", PROGRAM))
    assert set(STEP["env"]) == read - OF_GITHUB


def test_every_input_becomes_a_variable() -> None:
    given = {
        name: match[1]
        for name, text in STEP["env"].items()
        if (match := re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", text))
    }
    assert given == {name.upper(): name for name in ACTION["inputs"]}
    assert all("default" in one and one["description"] for one in ACTION["inputs"].values())


def test_every_output_is_written_by_the_program() -> None:
    (line,) = re.findall(r"printf '(.+)'", PROGRAM)
    written = re.findall(r"(?:^|\\n)(\w+)=%s", line)
    assert {name: one["value"] for name, one in ACTION["outputs"].items()} == {
        name: f"${{{{ steps.{STEP['id']}.outputs.{name} }}}}" for name in written
    }


def test_it_starts_the_program_of_its_folder_on_the_project_above() -> None:
    assert (ACTION["runs"]["using"], STEP["shell"]) == ("composite", "bash")
    assert STEP["run"] == 'bash "$GITHUB_ACTION_PATH/run.sh"'
    above = STEP["env"]["ROOT"].replace("${{ github.action_path }}", str(FOLDER))
    assert above.startswith("/")
    assert (FOLDER / above / "tidegauge").samefile(ROOT / "tidegauge")


# Copies the baseline into the report, which would truncate it if both were the same file.
MEASURES = """#!/bin/bash
while [ $# -gt 0 ]; do
    case $1 in --baseline) baseline=$2 ;; --report) report=$2 ;; esac
    shift
done
{ cat "$baseline"; echo "after it"; } >"$report"
exit 3
"""


@pytest.mark.parametrize(
    ("program", "outputs", "left"),
    [
        ("#!/bin/bash\nexit 2\n", "code=2\nreport=\n", None),
        (MEASURES, "code=3\nreport={folder}/report.json\n", "the baseline\nafter it\n"),
    ],
)
def test_the_report_is_that_of_this_step_also_if_its_baseline_has_the_same_name(
    tmp_path: Path, program: str, outputs: str, left: str | None
) -> None:
    folder, said = tmp_path / "results", tmp_path / "outputs"
    folder.mkdir()
    (folder / "report.json").write_text("the baseline\n")
    (tmp_path / "tidegauge").write_text(program)
    (tmp_path / "tidegauge").chmod(0o755)
    given = {"ROOT": tmp_path, "FOLDER": folder, "BASELINE": folder / "report.json"}
    names = {"WORKLOAD": "latency", "PIPELINE": "p", "GITHUB_OUTPUT": said} | given
    variables = os.environ | {name: str(value) for name, value in names.items()}
    done = subprocess.run(["bash", FOLDER / "run.sh"], env=variables, check=False)
    assert said.read_text() == outputs.format(folder=folder)
    assert f"code={done.returncode}\n" in outputs
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert found == ({} if left is None else {"report.json": left})
