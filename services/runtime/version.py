"""Which Tidegauge runs. Standard library only, so that `--version` appears at once."""

import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GIT_TIMEOUT_S = 10
UNKNOWN = "unknown"


def version(root: Path = ROOT) -> str:
    """The version in the `pyproject.toml` of a checkout or an image, else that of the installed
    package."""
    project = root / "pyproject.toml"
    try:
        if project.is_file():
            return str(tomllib.loads(project.read_text())["project"]["version"])
        return installed("tidegauge")
    except PackageNotFoundError:
        return UNKNOWN


def revision(root: Path = ROOT) -> str:
    """The tag of a checkout, `TAG-COMMITS-gHASH` after a tag, or its commit, each with `-dirty` if
    files were changed; the version where there is no checkout."""
    if not (root / ".git").exists():
        return version(root)
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.strip() if done.returncode == 0 else UNKNOWN


def shown(root: Path = ROOT) -> str:
    """The version, with the revision unless that is the version's tag."""
    number, place = version(root), revision(root)
    return number if place in (number, f"v{number}") else f"{number} (revision {place})"
