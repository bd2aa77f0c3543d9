"""Output files named on the command line: errors are reported before the work."""

import os
from pathlib import Path

import pytest

from schemas.validation_errors import DefinitionError
from services.console.files import check_file, write_file
from tests.command_line import parsed

pytestmark = pytest.mark.unit


def test_a_file_that_can_be_written_is_fine(tmp_path: Path) -> None:
    for path in (None, tmp_path / "new.json", Path("new.json"), Path("/dev/null")):
        check_file("--report", path)
    write_file("--report", tmp_path / "new.json", b"{}")
    check_file("--report", tmp_path / "new.json")
    assert (tmp_path / "new.json").read_bytes() == b"{}"


def test_what_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(DefinitionError, match=rf"^--report {missing}/r\.json: there is no folder"):
        check_file("--report", missing / "r.json")
    with pytest.raises(DefinitionError, match=r"^--html .*: that is a folder\.$"):
        check_file("--html", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(DefinitionError, match="there is no folder"):
        check_file("--html", tmp_path / "file" / "r.html")


def test_a_folder_or_file_of_somebody_else_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_asked: False)
    with pytest.raises(DefinitionError, match=r"it cannot be written\.$"):
        check_file("--report", tmp_path / "r.json")


def test_a_file_that_could_not_be_written_after_all_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"^--html .*: No such file or directory\.$"):
        write_file("--html", tmp_path / "gone" / "r.html", b"")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--report", "missing/r.json"],
        ["report", "--html", "missing/r.html"],
        ["report", "--junit", "missing/r.xml"],
        ["sql", "SELECT 1", "--output", "missing/r.csv"],
        ["bench", "--json", "missing/r.json"],
    ],
    ids=" ".join,
)
def test_every_verb_looks_at_its_file_before_it_does_anything(
    words: list[str],
) -> None:
    with pytest.raises(DefinitionError, match="there is no folder"):
        parsed(words)
