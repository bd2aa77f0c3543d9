"""Files of an earlier command never pass for those of a later one."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from deploy.local.install import InstallError
from services.console.__main__ import main
from services.console.files import begin_files
from services.console.verbs import tidegauge

pytestmark = pytest.mark.unit

VERBS = tidegauge.commands


@pytest.fixture
def old(tmp_path: Path) -> dict[str, Path]:
    """Yesterday's files, which say that all is well."""
    names = {"report": "r.json", "markdown": "r.md", "junit": "r.xml", "benchmark": "b.json"}
    found = {option: tmp_path / name for option, name in names.items()}
    for path in found.values():
        path.write_text("VALID")
    return found


def options(files: dict[str, Path]) -> list[str]:
    return [word for option, path in files.items() for word in (f"--{option}", str(path))]


def error_of(path: Path) -> str:
    suite = ElementTree.parse(path).getroot()[0]
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("1", "1", "0")
    (error,) = suite.iter("error")
    return error.get("message") or ""


@pytest.mark.parametrize("verb", ["run", "watch"])
def test_old_files_are_gone_before_anything_can_fail(old: dict[str, Path], verb: str) -> None:
    begin_files(VERBS, [verb, *options(old)])

    assert [name for name, path in old.items() if path.exists()] == ["junit"]
    assert "did not finish" in error_of(old["junit"])


def test_a_name_with_an_equals_sign_and_wrong_options_make_no_difference(old, capsys) -> None:
    given = [f"--{option}={path}" for option, path in old.items()]
    assert main(["run", "--no-such-option", *given]) == 2
    assert [name for name, path in old.items() if path.exists()] == ["junit"]
    assert "could not be executed" in error_of(old["junit"])
    assert "no-such-option" in capsys.readouterr().err


def test_the_reason_why_a_command_could_not_be_done_is_in_junit(old, capsys) -> None:
    assert main(["run", "--pipeline", "nosuch", *options(old)]) == 2
    assert "There is no pipeline 'nosuch'" in error_of(old["junit"])
    assert not old["report"].exists()


@pytest.mark.parametrize(
    "command",
    [
        ["report", "--html", "F"],
        ["sql", "SELECT 1", "--output", "F"],
        ["bench", "nosuch", "--json", "F"],
    ],
)
def test_files_of_other_verbs_are_removed_too(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    begin_files(VERBS, [str(path) if word == "F" else word for word in command])
    assert not path.exists()


@pytest.mark.parametrize(
    ("command", "name", "written"),
    [
        (["run", "--report"], "page.html", "JSON"),
        (["run", "--benchmark"], "README.md", "JSON"),
        (["run", "--markdown"], "junit.XML", "Markdown"),
        (["watch", "--junit"], "now.json", "JUnit XML"),
        (["report", "--html"], "README.md", "HTML"),
        (["bench", "--json"], "page.html", "JSON"),
    ],
)
def test_a_name_that_promises_another_format_is_refused_and_the_file_kept(
    tmp_path: Path, command: list[str], name: str, written: str, capsys
) -> None:
    path = tmp_path / name
    path.write_text("mine")
    assert main([*command, str(path)]) == 2
    refusal = f"{path}: it writes {written}, so the name of the file may not end in "
    assert refusal in capsys.readouterr().err
    assert path.read_text() == "mine"


@pytest.mark.parametrize("read", ["--baseline", "--input", "--domain", ""])
def test_a_file_that_the_command_also_reads_is_refused_and_kept(
    tmp_path: Path, read: str, capsys
) -> None:
    path = tmp_path / "now.json"
    path.write_text("{}")
    given = [*filter(None, [read]), str(path)]
    assert main(["run", *given, "--report", str(path)]) == 2
    assert "names this file twice" in capsys.readouterr().err
    assert path.read_text() == "{}"


@pytest.mark.parametrize(
    "wrong", [["--report", "README.md"], ["--report", "F", "--baseline", "F"], ["--report"]]
)
def test_a_mistake_in_one_option_leaves_no_other_file(
    old: dict[str, Path], wrong: list[str], capsys
) -> None:
    kept = old.pop("report")
    given = [str(kept) if word == "F" else word for word in wrong]
    assert main(["run", *given, *options(old)]) == 2
    assert [name for name, path in old.items() if path.exists()] == ["junit"]
    assert error_of(old["junit"])
    assert kept.read_text() == "VALID"


def test_each_file_of_an_option_that_is_given_twice_is_removed(tmp_path: Path) -> None:
    first, second = tmp_path / "first.xml", tmp_path / "second.xml"
    first.write_text("VALID")
    assert begin_files(VERBS, ["run", "--junit", str(first), "--junit", str(second)]) == second
    assert not first.exists()
    assert "did not finish" in error_of(second)


def test_what_prepares_a_command_comes_after_the_old_files_are_gone(old, capsys) -> None:
    def prepare() -> None:
        raise InstallError("the network does not answer")

    assert main(["run", *options(old)], prepare) == 2
    assert capsys.readouterr().err == "tidegauge: the network does not answer.\n"
    assert error_of(old["junit"]) == "the network does not answer."
    assert not old["report"].exists()


def test_help_removes_nothing(old: dict[str, Path]) -> None:
    begin_files(VERBS, ["run", *options(old), "--help"])
    assert all(path.read_text() == "VALID" for path in old.values())


def test_what_is_not_a_file_stays(tmp_path: Path) -> None:
    begin_files(VERBS, ["run", "--report", "/dev/null", "--markdown", str(tmp_path)])
    assert Path("/dev/null").exists()
    assert tmp_path.is_dir()


def test_the_target_of_a_link_is_removed_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    begin_files(VERBS, ["run", "--report", str(tmp_path / "link.json")])
    assert not (tmp_path / "real.json").exists()
    assert (tmp_path / "link.json").is_symlink()
