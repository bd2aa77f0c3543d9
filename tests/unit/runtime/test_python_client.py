"""To which store the Python client connects, and which one gets the password of a data folder."""

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.wheel import client
from services.runtime.process_identity import birth_of

pytestmark = pytest.mark.unit
SECRET = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": "of-this-folder"}
STACK = "http://127.0.0.1:18072"
STARTED = "http://127.0.0.1:19072"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a password."""
    monkeypatch.delenv("TIDEGAUGE_STORE_URL", raising=False)
    monkeypatch.setattr(client, "_store_of", lambda *_: SimpleNamespace(address=STARTED))
    monkeypatch.setattr(client, "_is_ready", lambda _address: True)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "clickhouse-reader").write_text("of-this-folder\n")
    return tmp_path


def a_stack(folder: Path, pid: int, birth: str = "") -> None:
    birth = birth or birth_of(pid)
    one = {"pid": pid, "birth": birth}
    state: dict[str, Any] = {"host": "127.0.0.1", "base_port": 18_070, "owner": one}
    state["services"] = [{"name": "store", **one}]
    (folder / "stack.json").write_text(json.dumps(state))


def test_the_stack_of_the_folder_gets_its_password(folder: Path) -> None:
    a_stack(folder, os.getpid())
    for results in (client.connect(data=folder), client.connect(STACK, data=folder)):
        assert (results._url, results._headers) == (STACK, SECRET)


def test_another_address_gets_only_what_was_given(folder: Path) -> None:
    a_stack(folder, os.getpid())
    other = "http://other-host:8123"
    assert client.connect(other, data=folder)._headers == {}
    given = client.connect(other, data=folder, user="me", password="mine")._headers
    assert given == {"X-ClickHouse-User": "me", "X-ClickHouse-Key": "mine"}


def test_the_store_of_the_settings_gets_the_password_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGAUGE_STORE_URL", "http://store:17072")
    results = client.connect(data=folder)
    assert (results._url, results._headers) == ("http://store:17072", SECRET)


@pytest.mark.parametrize(
    "recorded",
    [None, (2**22 + 1, "gone"), (os.getpid(), "another-boot/1")],
    ids=["not recorded", "above the highest pid", "reused pid"],
)
def test_a_folder_without_a_running_stack_gets_its_own_store(
    folder: Path, recorded: tuple[int, str] | None
) -> None:
    if recorded:
        a_stack(folder, *recorded)
    results = client.connect(data=folder)
    assert (results._url, results._headers) == (STARTED, SECRET)


def test_a_store_beside_another_stack_has_another_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGAUGE_HOST", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base_port = taken.getsockname()[1] - client.STORE_PORT
        monkeypatch.setenv("TIDEGAUGE_BASE_PORT", str(base_port))
        assert client._free_base_port() != base_port
    assert client._free_base_port() == base_port


def test_connections_to_a_folder_share_the_store_that_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Store:
        def __init__(self, *_: Path) -> None:
            self.is_running = True

    monkeypatch.setattr(client, "_Store", Store)
    first = client._store_of(tmp_path, tmp_path)
    assert client._store_of(tmp_path, tmp_path) is first
    first.is_running = False
    assert client._store_of(tmp_path, tmp_path) is not first
