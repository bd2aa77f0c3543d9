"""The store that queries use when no stack of the data folder is running."""

import socket
from pathlib import Path

import pytest

from deploy.local.stack import StackError
from services.console import remote_stack
from services.runtime.settings import PORT_OFFSETS, ServiceSettings

pytestmark = pytest.mark.unit


def test_the_store_of_another_stack_is_not_taken_for_that_of_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other store would return other results."""
    (tmp_path / "clickhouse").mkdir()
    monkeypatch.setattr(remote_stack, "_start", lambda *_given: pytest.fail("a store was started"))
    with socket.create_server(("127.0.0.1", 0)) as another:
        base_port = another.getsockname()[1] - PORT_OFFSETS["store"]
        settings = ServiceSettings(data=tmp_path, base_port=base_port)
        with (
            pytest.raises(StackError, match=rf"port {base_port + 2}, .*set TIDEGAUGE_BASE_PORT"),
            remote_stack.store_session(settings, lambda: False),
        ):
            pytest.fail("it answers")
