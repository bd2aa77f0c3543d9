"""What `--version` shows in a checkout, with git."""

import shutil
from pathlib import Path

import pytest

from services.runtime.version import revision, shown
from tests.repositories import git, make_repository

pytestmark = pytest.mark.integration


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Version 1.2.3, at its tag."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "README.md").touch()
    make_repository(tmp_path, "v1.2.3")
    return tmp_path


def test_a_checkout_that_is_not_at_the_tag_of_its_version_shows_its_revision(
    repository: Path,
) -> None:
    assert shown(repository) == "1.2.3"
    (repository / "README.md").write_text("changed")
    assert shown(repository) == "1.2.3 (revision v1.2.3-dirty)"
    git(repository, "commit", "--quiet", "--all", "--message", "Change it")
    commit = git(repository, "rev-parse", "--short", "HEAD")
    assert shown(repository) == f"1.2.3 (revision v1.2.3-1-g{commit})"
    git(repository, "tag", "--delete", "v1.2.3")
    assert shown(repository) == f"1.2.3 (revision {commit})"


def test_files_without_a_repository_have_their_version(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    assert revision(repository) == shown(repository) == "1.2.3"
    (repository / "pyproject.toml").unlink()
    assert shown(repository) == "unknown"  # Tidegauge is not installed where its tests run
