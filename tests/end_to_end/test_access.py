"""Other users of the machine have no access to a run's data, nor other processes to its secrets."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import SECRET

pytestmark = pytest.mark.end_to_end

UNINFORMED = (
    "kafka.Kafka",
    "kafka.tools.StorageTool",
    "org.apache.spark.deploy.SparkSubmit",
    "-m services.store",
    "-m services.evaluator",
    "-m services.collector",
    "-m services.generator",
    "-m services.conductor",
)
# What the user `nobody` tries with each given path; prints what succeeded. It switches to that user
# only after loading its modules, which may be in a folder of root's.
INTRUDER = """
import json, os, sys

paths = json.load(sys.stdin)
os.setgroups([])
os.setgid({user})
os.setuid({user})

def can(what, *arguments):
    try:
        what(*arguments)
    except (PermissionError, IsADirectoryError):  # the latter: writing into a folder
        return False
    except OSError:
        pass  # what it tried makes no sense there, but nobody kept it away
    return True

done = []
for path in paths:
    for name, what, arguments in (
        ("stat", os.stat, (path,)),
        ("list", os.listdir, (path,)),
        ("read", os.open, (path, os.O_RDONLY)),
        ("write", os.open, (path, os.O_WRONLY)),
        ("make", os.mkdir, (path + ".intruder",)),
        ("link", os.link, (path, path + ".link")),
        ("rename", os.rename, (path, path + ".moved")),
        ("remove", os.unlink, (path,)),
        ("open up", os.chmod, (path, 0o777)),
    ):
        if can(what, *arguments):
            done.append([name, path])
print(json.dumps(done))
""".replace("{user}", "65534")


def test_secrets_of_spark_are_on_no_command_line_and_only_where_they_are_needed(finished) -> None:
    lines = {process.line for process in finished.seen}
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    assert not [line for line in lines if SECRET in line]
    informed = {p.line for p in finished.seen if any(SECRET in value for _, value in p.environment)}
    assert any("-m services.runner" in line for line in informed)
    for name in UNINFORMED:
        assert any(name in line for line in lines), name
        assert not [line for line in informed if name in line]


def test_everything_in_the_data_folder_is_closed_to_others(finished) -> None:
    paths = [finished.data, *finished.data.rglob("*")]
    assert len(paths) > 100
    modes = {path: path.lstat().st_mode for path in paths if not path.is_symlink()}
    assert [path for path, mode in modes.items() if stat.S_IMODE(mode) & 0o077] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_reads_and_changes_nothing(finished) -> None:
    paths = [finished.data, *finished.data.rglob("*")]
    before = {path: path.lstat().st_mtime_ns for path in paths}
    assert finished.data / "secrets" / "clickhouse-admin" in before
    assert as_nobody([finished.place / "report.json"]) != []  # the check itself works
    # The folder above it, which is not ours, shows that it exists.
    assert as_nobody(paths) == [["stat", str(finished.data)]]
    assert {path: path.lstat().st_mtime_ns for path in before} == before


def as_nobody(paths: list[Path]) -> list[list[str]]:
    """What the user `nobody` can do, given every path."""
    done = subprocess.run(
        [sys.executable, "-c", INTRUDER],
        input=json.dumps([str(path) for path in paths]),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found
