"""Errors of an engine's installation, in one sentence."""

from pathlib import Path

import pytest

from deploy.local.engines import install_engines
from deploy.local.install import InstallError
from services.definitions.engines import load_engine
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["flink-sql", "bytewax"])
def test_a_python_without_wheels_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("sys.version_info", (3, 13, 0))
    settings = ServiceSettings(data=tmp_path, installed_engines=tmp_path)
    with pytest.raises(InstallError, match=r"it needs a Python older than 3\.13, and this is"):
        install_engines([load_engine(name)], settings, print)
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_installed_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    settings = ServiceSettings(data=tmp_path, installed_engines=taken)
    said = f"^the engine quix is not installed: {taken}/quix: Not a directory$"
    with pytest.raises(InstallError, match=said):
        install_engines([load_engine("quix")], settings, print)
