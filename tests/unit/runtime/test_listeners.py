"""Ports that another user listens on, from literal files of the kernel."""

import os
import socket
from pathlib import Path

import pytest

from services.runtime import clickhouse
from services.runtime.clickhouse import QueryError, StoreUrl, is_of_another_user

pytestmark = pytest.mark.unit

HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
)
PORT = 17_072  # 42B0


def line(user: int, state: str = "0A", address: str = "0100007F:42B0") -> str:
    return (
        f"   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {user} 0 1"
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("tcp", line(os.geteuid()), False),
        ("tcp", line(0), False),
        ("tcp", line(54_321), True),
        ("tcp6", line(54_321, address="00000000000000000000000000000000:42B0"), True),
        ("tcp", line(54_321, state="01"), False),  # a connection
        ("tcp", line(54_321, address="0100007F:42B1"), False),
        ("tcp", "", False),
    ],
)
def test_a_port_of_another_user(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    (tmp_path / name).write_text(HEAD + text)
    assert is_of_another_user(PORT, tmp_path) is expected


def test_our_own_port_is_not_of_another_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_of_another_user(server.getsockname()[1])


def test_the_store_of_a_stack_gets_its_password_only_from_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clickhouse, "is_of_another_user", lambda port: port == PORT)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "clickhouse-reader").write_text("x")
    with pytest.raises(QueryError, match="belongs to another user"):
        StoreUrl.of("127.0.0.1", PORT, tmp_path).headers()
    assert StoreUrl.of("127.0.0.1", PORT + 1, tmp_path).headers()
    assert StoreUrl.at(f"http://127.0.0.1:{PORT}", tmp_path).headers()  # a server elsewhere
