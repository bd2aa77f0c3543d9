"""The embedded engine does not open a folder that it could damage."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from services.store.engines import chdb_engine
from services.store.engines.chdb_engine import MEBIBYTE, ChdbEngine, NoRoomError
from services.store.settings import StoreSettings

pytestmark = pytest.mark.unit


def test_a_folder_on_a_disk_without_room_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=64 * MEBIBYTE - 1)
    monkeypatch.setattr(chdb_engine.shutil, "disk_usage", lambda _folder: usage)
    with pytest.raises(NoRoomError, match="has 63 MiB of free space; the store needs 64 to start"):
        ChdbEngine(StoreSettings(data=tmp_path))
    assert list((tmp_path / "clickhouse").iterdir()) == []
