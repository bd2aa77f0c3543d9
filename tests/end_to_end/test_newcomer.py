"""A newcomer clones, runs and tests, with nothing but Python, git and a network connection."""

import os
import subprocess
from pathlib import Path

import pytest

from services.runtime.settings import ROOT
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.fresh

BASE_PORT = free_base_port()


def test_a_clone_runs_and_tests_itself(tmp_path: Path) -> None:
    clone = tmp_path / "tidegauge"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    ran = _command(clone, "run", "smoke")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "VALID: every expected output was published once, exact and in time." in ran.stdout
    tested = _command(clone, "test", "unit")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    left = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert left.stdout == "", "what it makes is not for the repository"


def _command(clone: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`./tidegauge` of the clone, without the variables of this process's environment."""
    ours = {name: value for name, value in os.environ.items() if name[:10] != "TIDEGAUGE_"}
    return subprocess.run(
        [str(clone / "tidegauge"), *arguments],
        cwd=clone,
        env=ours | {"TIDEGAUGE_BASE_PORT": str(BASE_PORT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
