"""What a release refuses, with git; its lists and images, with programs in place of others."""

import os
from pathlib import Path

import pytest

from deploy.release import EXIT_FAILED, ReleaseError, main, release, write_image, write_lists
from tests.repositories import git, make_repository

pytestmark = pytest.mark.integration

NOTES = "# Changelog\n\n## 1.2.3 - 2026-12-24\n\n- The first.\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Version 1.2.3, with its tag."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "tidegauge"\nversion = "1.2.3"\n')
    (folder / "CHANGELOG.md").write_text(NOTES)
    make_repository(folder, "v1.2.3")
    return folder


def refusal(repository: Path, tag: str, folder: Path) -> str:
    with pytest.raises(ReleaseError) as error:
        release(repository, tag, folder)
    return str(error.value)


def test_a_tag_that_does_not_exist_is_refused(repository: Path, tmp_path: Path) -> None:
    git(repository, "branch", "v1.2.4")
    expected = f"{repository} has no tag v1.2.4."
    assert refusal(repository, "v1.2.4", tmp_path / "dist") == expected
    assert not (tmp_path / "dist").exists()


def test_a_tag_of_another_version_than_the_package_is_refused(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "tag", "v1.2.4")
    project = repository / "pyproject.toml"
    project.write_text(project.read_text().replace("1.2.3", "1.2.4"))  # not committed
    expected = "The version of the package at v1.2.4 is 1.2.3."
    assert refusal(repository, "v1.2.4", tmp_path / "dist") == expected


def test_a_tag_without_notes_is_refused_whatever_the_working_copy_has(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "CHANGELOG.md").write_text(NOTES.replace("2026-12-24", "YYYY-MM-DD"))
    git(repository, "commit", "--quiet", "--all", "--message", "Undate")
    git(repository, "tag", "--force", "v1.2.3")
    (repository / "CHANGELOG.md").write_text(NOTES)
    (tmp_path / "dist").mkdir()
    expected = "CHANGELOG.md has no section '## 1.2.3 - YYYY-MM-DD' with its date."
    assert refusal(repository, "v1.2.3", tmp_path / "dist") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dist", "repository"]
    assert list((tmp_path / "dist").iterdir()) == []


def test_a_folder_with_a_file_is_refused(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "of-mine").touch()
    assert refusal(repository, "v1.2.3", folder) == f"{folder} is not an empty folder."
    file = folder / "of-mine"
    assert refusal(repository, "v1.2.3", file) == f"{file} is not an empty folder."


def test_a_refusal_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["v0.1", "--folder", str(tmp_path)]) == EXIT_FAILED
    refused = "tidegauge: 'v0.1' is not a tag of a release, such as v0.1.0.\n"
    assert capsys.readouterr() == ("", refused)


def listing_tree(folder: Path, sbom: str) -> Path:
    """A tree whose `deploy.dependencies update` writes "new" into both lists."""
    place = folder / "deploy" / "dependencies"
    place.mkdir(parents=True)
    for package in (place.parent, place):  # else a package of this name on PYTHONPATH goes first
        (package / "__init__.py").touch()
    (place / "__main__.py").write_text(
        "from pathlib import Path\n"
        "for name in ('sbom.cdx.json', 'licences.json'):\n"
        "    Path(__file__).with_name(name).write_text('new')\n"
    )
    (place / "sbom.cdx.json").write_text(sbom)
    (place / "licences.json").write_text("new")
    return folder


def test_a_bill_of_materials_that_is_not_current_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"^sbom\.cdx\.json is not current; "):
        write_lists(listing_tree(tmp_path, "old"), tmp_path, os.environ)


def test_lists_of_components_are_written(tmp_path: Path) -> None:
    write_lists(listing_tree(tmp_path, "new"), tmp_path, os.environ)
    assert (tmp_path / "sbom.cdx.json").read_text() == "new"
    assert (tmp_path / "licences.json").read_text() == "new"


def container_engine(folder: Path, name: str, *, answers: bool) -> None:
    """A program that writes its arguments to NAME.log, and the file that `save` names."""
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(
        f'#!/bin/sh\n[ "$1" = info ] && exit {int(not answers)}\necho "$@" >> "$0.log"\n'
        '[ "$1" = save ] && echo "$4" > "$3"\n[ "$1" != build ] || [ -f pyproject.toml ]\n'
    )
    script.chmod(0o755)


def test_the_image_of_the_services_is_built_from_the_tree_and_saved(
    repository: Path, tmp_path: Path
) -> None:
    programs, product = tmp_path / "bin", tmp_path / "product"
    product.mkdir()
    container_engine(programs, "docker", answers=False)
    container_engine(programs, "podman", answers=True)
    write_image(repository, "1.2.3", product, {"PATH": str(programs)})
    assert {path.name: path.read_text() for path in product.iterdir()} == {
        "tidegauge-services-1.2.3.tar": "tidegauge/services:1.2.3\n"
    }
    assert (programs / "podman.log").read_text().splitlines() == [
        "build -f deploy/images/Dockerfile -t tidegauge/services:1.2.3 .",
        f"save --output {product}/tidegauge-services-1.2.3.tar tidegauge/services:1.2.3",
    ]
    assert not (programs / "docker.log").exists()


def test_an_image_that_cannot_be_built_ends_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container_engine(tmp_path / "bin", "docker", answers=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReleaseError, match=r"failed with code 1: docker build .*/services:1\.2\.3"):
        write_image(tmp_path / "empty", "1.2.3", tmp_path, {"PATH": str(tmp_path / "bin")})
    assert list(tmp_path.glob("*.tar")) == []


def test_the_image_is_left_out_aloud_where_no_container_engine_answers(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container_engine(tmp_path / "bin", "docker", answers=False)
    write_image(repository, "1.2.3", tmp_path, {"PATH": str(tmp_path / "bin")})
    assert capsys.readouterr().out == (
        "Without an image: neither docker nor podman answers on this machine.\n"
    )
    assert list(tmp_path.glob("*.tar")) == []
