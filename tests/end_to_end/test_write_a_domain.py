"""Follows docs/write-a-domain.md as a reader would type it."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.runtime.settings import ROOT
from tests.end_to_end.workload_files import changed_text
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.documented

PAGE = ROOT / "docs" / "write-a-domain.md"
BASE_PORT = free_base_port()
RUN = re.compile(r"^\./tidegauge run .*$", re.M)
# The page's workload with a short warm-up, and so patient that a busy machine makes nothing late.
PATIENT = {
    'summary = "100 records/s of rooms."': 'summary = "100 records/s of rooms."\nkeep_up_s = 4',
    'warm_up_s = "auto"': "warm_up_s = 4",
    "cool_down_s = 6": """cool_down_s = 6

[judgement]
deadline_ms = 90_000
give_up_ms = 100_000

[validity]
max_send_delay_p99_ms = 10_000""",
}


def blocks() -> list[str]:
    """The commands that a reader types, block by block."""
    text = changed_text(PAGE.read_text(), PATIENT)
    return re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the page's commands work, without the repository's own files, and a running
    stack, so that not each of its runs starts one."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "tidegauge").symlink_to(ROOT / "tidegauge")
    up = typed("./tidegauge up --detach", folder)
    assert up.returncode == 0, up.stdout + up.stderr
    yield folder
    assert typed("./tidegauge down", folder).returncode == 0


def typed(text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    told = {"TIDEGAUGE_BASE_PORT": str(BASE_PORT), "TIDEGAUGE_DATA": str(folder / "data")}
    return subprocess.run(
        ["sh", "-e", "-c", RUN.sub(r"\g<0> --duration 5", text.replace("/tmp", str(folder)))],
        cwd=folder,
        env=os.environ | told,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_page_builds_a_domain_that_runs(copy: Path) -> None:
    runs = 0
    for block in blocks():
        done = typed(block, copy)
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        if RUN.search(block):
            assert "VALID: every expected output was published once" in done.stdout, done.stdout
            runs += 1
    assert runs == 2
