"""Errors of an engine's installation, in one sentence."""

from pathlib import Path

import pytest

from deploy.local.engines import install_engines
from deploy.local.install import InstallError
from services.runtime.engines import load_engine
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit


def test_a_place_where_nothing_can_be_installed_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    settings = ServiceSettings(data=tmp_path, installed_engines=taken)
    said = f"^the engine quix is not installed: {taken}/quix: Not a directory$"
    with pytest.raises(InstallError, match=said):
        install_engines([load_engine("quix")], settings, print)
