"""The wheel works outside the checkout, in an otherwise empty environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.runtime.jvm import FOLDER as ARCHIVES
from services.runtime.settings import ROOT
from tests.integration.kafka_broker import broker, free_base_port  # noqa: F401
from tests.integration.test_export import await_that, free_port, get, pairs, verdicts, watch_file
from tests.integration.watched_pipeline import Load, make_topics

pytestmark = pytest.mark.end_to_end

BASE_PORT = free_base_port()
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("tidegauge-*.whl")
    return found


def test_nothing_but_tidegauge_is_put_beside_other_packages(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        inside = {
            name.split("/")[1] for name in archive.namelist() if name.startswith("tidegauge/")
        }
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tidegauge"}
    assert {"services", "schemas", "domains", "workloads", "pipelines", "suites"} <= inside


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


@pytest.mark.fresh
def test_a_watch_is_exported_with_a_tenth_of_the_packages(
    wheel: Path,
    tmp_path: Path,
    broker,  # noqa: F811
) -> None:
    environment, environ = tmp_path / "venv", ours_without()
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python, downloads = environment / "bin" / "python", tmp_path / "downloads"
    whole = f"tidegauge[watch] @ {wheel.as_uri()}"
    locked = ["--constraint", str(pins_without_hashes(tmp_path))]
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    fetch = [*pip, "download", "--dest", downloads, *locked, whole]
    subprocess.run(fetch, env=environ, check=True)
    assert sum(file.stat().st_size for file in downloads.iterdir()) < MOST_BYTES
    install = [*pip, "install", "--no-index", "--find-links", downloads, "tidegauge[watch]"]
    subprocess.run(install, env=environ, check=True)
    frozen = [python, "-m", "pip", "list", "--format", "freeze"]
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
