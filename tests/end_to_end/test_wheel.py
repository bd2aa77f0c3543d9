"""The wheel works outside the checkout, in an otherwise empty environment."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from services.runtime.jvm import FOLDER as ARCHIVES
from services.runtime.settings import ROOT
from tests.integration.kafka_broker import free_base_port

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
    install = [uv, "pip", "install", "--quiet", "--python", str(python), *locked, str(wheel)]
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
