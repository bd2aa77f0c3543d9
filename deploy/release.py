"""python -m deploy.release v0.1.0 --folder DIST      make a release from its tag

The folder must be empty or not exist. It gets:

    tidegauge-0.1.0-py3-none-any.whl    the package
    tidegauge-0.1.0.tar.gz              all files of the tag, from which the package can be built
    sbom.cdx.json, licences.json        third-party components (deploy/dependencies)
    NOTES.md                            the section of CHANGELOG.md
    tidegauge-SERVICE-0.1.0.tar         the image of each service, if docker or podman answers
    SHA256SUMS                          of all these: sha256sum --check SHA256SUMS

Everything is built in temporary folders from what the tag contains, so changes that are not
committed have no effect. File times are that of the tag's commit: the same tag gives the same bytes
of all but images, with the same versions of Python, zlib and hatchling.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from services.runtime.version import version as packaged_version

ROOT = Path(__file__).resolve().parents[1]
IMAGE = "tidegauge/services"
LISTS = ("sbom.cdx.json", "licences.json")
UPDATE = ".venv/bin/python -m deploy.dependencies update"
CONTAINER_ENGINES = ("docker", "podman")
ANSWER_TIMEOUT_S = 30
COMMIT_TIME = ("--no-patch", "--no-show-signature", "--format=%ct")
EXIT_FAILED = 2


class ReleaseError(Exception):
    """A release cannot be made; the text is one sentence."""


def main(arguments: list[str]) -> int:
    """Make a release; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.release",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tag", help="such as v0.1.0")
    parser.add_argument("--folder", type=Path, required=True, help="for the files of the release")
    options = parser.parse_args(arguments)
    try:
        release(ROOT, options.tag, options.folder.resolve())
    except (ReleaseError, OSError) as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def release(repository: Path, tag: str, folder: Path) -> None:
    """Make the release of a tag. Raises ReleaseError and OSError; the folder is then as before."""
    version = version_of(tag)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReleaseError(f"{folder} is not an empty folder.")
    commit = _git(repository, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
    if not commit:
        raise ReleaseError(f"{repository} has no tag {tag}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="tidegauge-release-") as work,
        TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside,
    ):
        tree, product = Path(work, "tree"), Path(beside, "product")
        product.mkdir()
        _extract(repository, commit, tree)
        packaged = packaged_version(tree)
        if packaged != version:
            raise ReleaseError(f"The version of the package at {tag} is {packaged}.")
        notes = notes_of((tree / "CHANGELOG.md").read_text(), version)
        (product / "NOTES.md").write_text(notes)
        environ = _environment(tree, _git(repository, "show", *COMMIT_TIME, commit))
        write_lists(tree, product, environ)
        targets = ("-t", "sdist", "-t", "wheel", "-d", str(product))
        _run([sys.executable, "-m", "hatchling", "build", *targets], tree, environ)
        write_image(tree, version, product, environ)
        (product / "SHA256SUMS").write_text(sums_of(product))
        product.rename(folder)  # takes the place of an empty folder
    print(f"{tag}, commit {commit}, is in {folder}")


def version_of(tag: str) -> str:
    """The version that a tag names. Raises ReleaseError."""
    match = re.fullmatch(r"v(\d+\.\d+\.\d+)", tag)
    if match is None:
        raise ReleaseError(f"{tag!r} is not a tag of a release, such as v0.1.0.")
    return match[1]


def notes_of(changelog: str, version: str) -> str:
    """The section of a version, with its heading `## 0.1.0 - 2026-12-24`, to the next heading of
    that level. Raises ReleaseError if there is none, or it has no date."""
    heading = re.compile(rf"## {re.escape(version)} - \d{{4}}-\d{{2}}-\d{{2}}\n")
    for section in re.split(r"^(?=## )", changelog, flags=re.MULTILINE):
        if heading.match(section):
            return section.rstrip() + "\n"
    raise ReleaseError(f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD' with its date.")


def sums_of(folder: Path) -> str:
    """SHA-256 and name of all files of a folder, as `sha256sum` writes them."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def write_lists(tree: Path, product: Path, environ: Mapping[str, str]) -> None:
    """Write the bill of materials and the licences again, from the locks of a tree and the
    installed packages. Raises ReleaseError if they differ from those that the tree contains."""
    place = tree / "deploy" / "dependencies"
    committed = {name: (place / name).read_bytes() for name in LISTS}
    _run([sys.executable, "-m", "deploy.dependencies", "update"], tree, environ)
    for name, content in committed.items():
        if (place / name).read_bytes() != content:
            raise ReleaseError(f"{name} is not current; before the tag, commit it after: {UPDATE}")
        shutil.copy(place / name, product / name)


def write_image(tree: Path, version: str, product: Path, environ: Mapping[str, str]) -> None:
    """Build the image of the services and save it as a file, or print that none was built. Raises
    ReleaseError."""
    engine = next((name for name in CONTAINER_ENGINES if _answers(name, environ)), None)
    if engine is None:
        print("Without an image: neither docker nor podman answers on this machine.")
        return
    image = f"{IMAGE}:{version}"
    print(f"{engine} builds {image}", flush=True)
    _run([engine, "build", "-f", "deploy/images/Dockerfile", "-t", image, "."], tree, environ)
    file = product / f"tidegauge-services-{version}.tar"
    _run([engine, "save", "--output", str(file), image], tree, environ)


def _answers(engine: str, environ: Mapping[str, str]) -> bool:
    """Whether a container engine is installed and its service runs."""
    try:
        done = subprocess.run(
            [engine, "info"],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _extract(repository: Path, commit: str, tree: Path) -> None:
    """Write the files of a commit into a new folder."""
    archive = tree.with_suffix(".tar")
    options = ("-c", "core.autocrlf=false", "archive", "--output", str(archive))
    _run(["git", *options, commit], repository, os.environ)
    with tarfile.open(archive) as files:
        files.extractall(tree, filter="data")


def _environment(tree: Path, time_s: str) -> dict[str, str]:
    """Variables of the programs that build. time_s: of all files, in seconds of Unix time."""
    ours = {"SOURCE_DATE_EPOCH": time_s, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return os.environ | ours


def _git(repository: Path, *arguments: str) -> str:
    """The output of a command of git; empty if it fails."""
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    """Run a command to its end. Raises ReleaseError, after its output was shown."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise ReleaseError(f"This failed with code {done.returncode}: {' '.join(command)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
