"""A release is made from a tag, and its wheel works outside the checkout, in an otherwise empty
environment."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.runtime.jvm import FOLDER as ARCHIVES
from services.runtime.settings import ROOT
from services.runtime.version import version
from tests.integration.kafka_broker import broker, free_base_port  # noqa: F401
from tests.integration.test_export import await_that, free_port, get, pairs, verdicts, watch_file
from tests.integration.watched_pipeline import Load, make_topics
from tests.repositories import COMMITTED_S, git, make_repository

pytestmark = pytest.mark.end_to_end

BASE_PORT = free_base_port()
TAG = f"v{version()}"
DAY = "2026-12-24"
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the files of this checkout, with a tag of its version and, after it, changes
    that are not committed."""
    folder = tmp_path_factory.mktemp("repository")
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
    for name in listed.splitlines():
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    changelog = folder / "CHANGELOG.md"
    heading = f"## {version()} - "
    changelog.write_text(changelog.read_text().replace(f"{heading}YYYY-MM-DD", f"{heading}{DAY}"))
    make_repository(folder, TAG)
    (folder / "LICENSE").write_text("changed")
    (folder / "domains" / "new").mkdir()
    (folder / "domains" / "new" / "domain.toml").touch()
    return folder


def released(repository: Path, folder: Path, umask: int) -> str:
    """Make the release of TAG in a folder, without a container engine; what the command prints."""
    programs = folder.with_name("programs")
    programs.mkdir(exist_ok=True)
    program = shutil.which("git")
    assert program is not None
    (programs / "git").symlink_to(program)
    done = subprocess.run(
        [sys.executable, "-m", "deploy.release", TAG, "--folder", str(folder)],
        cwd=repository,
        env=ours_without() | {"PATH": str(programs)},
        umask=umask,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def release(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    commit = git(repository, "rev-parse", "HEAD")
    assert released(repository, folder, 0o022).splitlines() == [
        "Without an image: neither docker nor podman answers on this machine.",
        f"{TAG}, commit {commit}, is in {folder}",
    ]
    return folder


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    return release / f"tidegauge-{version()}-py3-none-any.whl"


def test_a_release_has_its_files_with_their_checksums(release: Path) -> None:
    archive = f"tidegauge-{version()}.tar.gz"
    files = ["NOTES.md", "licences.json", "sbom.cdx.json", archive]
    files.append(f"tidegauge-{version()}-py3-none-any.whl")
    assert sorted(path.name for path in release.iterdir()) == sorted(["SHA256SUMS", *files])
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    checked = subprocess.run(check, cwd=release, check=True, capture_output=True, text=True)
    assert sorted(checked.stdout.splitlines()) == sorted(f"{name}: OK" for name in files)
    for name in ("sbom.cdx.json", "licences.json"):
        committed = ROOT / "deploy" / "dependencies" / name
        assert (release / name).read_bytes() == committed.read_bytes()
    notes = (release / "NOTES.md").read_text()
    assert notes.startswith(f"## {version()} - ")
    assert notes in (ROOT / "CHANGELOG.md").read_text().replace("YYYY-MM-DD", DAY)


def test_a_release_has_what_was_committed_and_nothing_else(repository: Path, release: Path) -> None:
    committed = git(repository, "ls-tree", "-r", "--name-only", TAG).splitlines()
    top = f"tidegauge-{version()}"
    with tarfile.open(release / f"{top}.tar.gz") as archive:
        assert sorted(archive.getnames()) == sorted(
            f"{top}/{name}" for name in (*committed, "PKG-INFO")
        )
        text = archive.extractfile(f"{top}/LICENSE")
        assert text is not None
        assert text.read() == (ROOT / "LICENSE").read_bytes()
        assert {each.mtime for each in archive} == {COMMITTED_S}
    assert "domains/new/domain.toml" not in committed


def test_a_release_that_is_made_again_has_the_same_bytes(
    repository: Path, release: Path, tmp_path: Path
) -> None:
    released(repository, tmp_path / "again", 0o077)
    for path in release.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_wheel_can_be_built_from_the_sdist(release: Path, wheel: Path, tmp_path: Path) -> None:
    top = f"tidegauge-{version()}"
    with tarfile.open(release / f"{top}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environ = ours_without() | {"SOURCE_DATE_EPOCH": str(COMMITTED_S)}
    subprocess.run(build, cwd=tmp_path / top, env=environ, check=True, capture_output=True)
    assert names_of(tmp_path / wheel.name) == names_of(wheel)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def names_of(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return archive.namelist()


def test_nothing_but_tidegauge_is_put_beside_other_packages(wheel: Path) -> None:
    names = names_of(wheel)
    tops = {name.partition("/")[0] for name in names}
    inside = {name.split("/")[1] for name in names if name.startswith("tidegauge/")}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tidegauge"}
    assert {"services", "schemas", "domains", "workloads", "pipelines", "suites"} <= inside


@pytest.mark.parametrize("packaged", [True, False], ids=["wheel", "checkout"])
def test_version_is_printed_before_anything_is_fetched(
    repository: Path, wheel: Path, tmp_path: Path, packaged: bool
) -> None:
    jars, program, root = tmp_path / "jars", "services.console", repository
    shown = f"{version()} (revision {TAG}-dirty)"
    if packaged:
        shown, program, root = version(), "tidegauge", tmp_path / "unpacked"
        with ZipFile(wheel) as archive:
            archive.extractall(root)
    done = subprocess.run(
        [sys.executable, "-m", program, "--version"],
        cwd=tmp_path,
        env=ours_without() | {"PYTHONPATH": str(root), "TIDEGAUGE_JARS": str(jars)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (f"tidegauge {shown}\n", "")
    assert not jars.exists()


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """The downloaded jars, with a folder of class archives that no JVM trusts: only this
    environment could use its archives."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for one in (ROOT / ".jars").iterdir():
        if one.name != ARCHIVES:
            (folder / one.name).symlink_to(one)
    (folder / ARCHIVES).mkdir()
    (folder / ARCHIVES).chmod(0o777)
    return folder


@pytest.mark.fresh
def test_an_installed_wheel_passes_the_smoke_run(wheel: Path, tmp_path: Path, jars: Path) -> None:
    environment = tmp_path / "venv"
    uv = str(UV) if UV.exists() else "uv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    python = environment / "bin" / "python"
    locked = ["--constraint", str(ROOT / "requirements.lock")]
    whole = f"tidegauge[run] @ {wheel.as_uri()}"
    install = [uv, "pip", "install", "--quiet", "--python", str(python), *locked, whole]
    subprocess.run(install, check=True)
    ours = {name: value for name, value in os.environ.items() if name[:10] != "TIDEGAUGE_"}
    told = {"TIDEGAUGE_BASE_PORT": str(BASE_PORT), "TIDEGAUGE_JARS": str(jars)}
    ran = subprocess.run(
        [environment / "bin" / "tidegauge", "run", "smoke"],
        cwd=tmp_path,
        env={name: value for name, value in ours.items() if name != "PYTHONPATH"} | told,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "VALID: every expected output was published once, exact and in time." in ran.stdout
    assert (tmp_path / ".tidegauge").is_dir()


HEAVY = {"pyspark", "chdb", "faust-streaming", "pandas", "pyarrow", "clickhouse-connect", "aiohttp"}
IN_A_CHECKOUT = {"schemas", "services", "analysis", "deploy", "engines"}
MOST_BYTES = 150 * 1024**2


def ours_without(*names: str) -> dict[str, str]:
    """The environment without settings of Tidegauge, and without the checkout on Python's path."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", *names) and not name.startswith("TIDEGAUGE_")
    }


def until_the_first_scrape(command, folder, name, broker, environ) -> None:  # noqa: F811
    """Export a watch by a command, and wait for figures of its records."""
    make_topics(broker.bootstrap, **{f"{name}-in": 1, f"{name}-out": 1})
    load = Load(broker.bootstrap, pairs(name), count=200, per_second=1_000)
    load.start()
    load.join()
    path, port = watch_file(folder, broker, name), free_port()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "watch", str(path), "--export", "--port", str(port)],
            cwd=folder,
            env=environ,
            stdout=output,
            stderr=output,
        )
    try:
        wanted = {"exact": 180, "missing": 20, "duplicate": 8}
        await_that(process, folder, lambda: verdicts(port) == wanted)
        assert list(text_string_to_metric_families(get(port, "/metrics")))
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but `tidegauge[watch]`, of packages that were downloaded before:
    it is installed without an index."""
    folder = tmp_path_factory.mktemp("small")
    environment, environ = folder / "venv", ours_without()
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python, downloads = environment / "bin" / "python", folder / "downloads"
    whole = f"tidegauge[watch] @ {wheel.as_uri()}"
    locked = ["--constraint", str(pins_without_hashes(folder))]
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    fetch = [*pip, "download", "--dest", downloads, *locked, whole]
    subprocess.run(fetch, env=environ, check=True)
    assert sum(file.stat().st_size for file in downloads.iterdir()) < MOST_BYTES
    install = [*pip, "install", "--no-index", "--find-links", downloads, "tidegauge[watch]"]
    subprocess.run(install, env=environ, check=True)
    return environment


@pytest.mark.fresh
def test_an_installed_wheel_prints_its_version(environment: Path, tmp_path: Path) -> None:
    command = [environment / "bin" / "tidegauge", "--version"]
    done = subprocess.run(
        command, cwd=tmp_path, env=ours_without(), check=True, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (f"tidegauge {version()}\n", "")


@pytest.mark.fresh
def test_a_watch_is_exported_with_a_tenth_of_the_packages(
    environment: Path,
    tmp_path: Path,
    broker,  # noqa: F811
) -> None:
    environ = ours_without()
    frozen = [environment / "bin" / "python", "-m", "pip", "list", "--format", "freeze"]
    listed = subprocess.run(frozen, env=environ, check=True, capture_output=True, text=True)
    names = {line.partition("==")[0] for line in listed.stdout.splitlines()}
    assert "confluent-kafka" in names
    assert HEAVY & names == set()
    command = environment / "bin" / "tidegauge"
    until_the_first_scrape([command], tmp_path, "small", broker, environ)
    refused = subprocess.run(
        [command, "run"], cwd=tmp_path, env=environ, check=False, capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert refused.stderr == (
        "tidegauge: This needs chdb, a package of the stack: pip install 'tidegauge[run]'\n"
    )


def pins_without_hashes(folder: Path) -> Path:
    """The lock as constraints: pip checks hashes of everything or of nothing, and the wheel has
    none."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.removesuffix(" \\") for line in lines if line[:1].isalnum()]
    path = folder / "constraints"
    path.write_text("\n".join(pins) + "\n")
    return path


@pytest.mark.fresh
def test_a_checkout_exports_a_watch_before_the_stack_is_installed(
    tmp_path: Path,
    broker,  # noqa: F811
) -> None:
    root = tmp_path / "checkout"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        if name.split("/")[0] in IN_A_CHECKOUT or "/" not in name:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    until_the_first_scrape([root / "tidegauge"], tmp_path, "checkout", broker, ours_without())
    assert not (root / ".venv" / "bin").exists()
    packages = next((root / ".venv-watch" / "lib").iterdir()) / "site-packages"
    assert (packages / "confluent_kafka").is_dir()
    assert not any((packages / name).exists() for name in HEAVY)
