"""Answers of the embedded engine."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from services.store.engine import EngineError, Query
from services.store.engines.chdb_engine import ChdbEngine
from services.store.settings import StoreSettings
from tests.unit.store.let_through import LetThrough

pytestmark = pytest.mark.unit


class Result:
    """A result of 2,000 bytes. taken: receives those that have been copied to Python."""

    def __init__(self, taken: list["Result"]) -> None:
        self._taken = taken

    def size(self) -> int:
        return 2_000

    def bytes(self) -> bytes:
        self._taken.append(self)
        return b'{"name": "x"}'.ljust(2_000)

    def storage_rows_read(self) -> int:
        return 0

    storage_bytes_read = rows_read = bytes_read = rows_written = bytes_written = storage_rows_read


class Connection:
    """Gives this result to every statement."""

    def __init__(self) -> None:
        self.taken: list[Result] = []

    def query(self, *_given: str | Mapping[str, str]) -> Result:
        return Result(self.taken)

    def close(self) -> None:
        pass


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def engine(tmp_path: Path, connection: Connection) -> ChdbEngine:
    """An engine with that connection, which limits results to 1,999 bytes."""
    settings = StoreSettings(data=tmp_path, query_max_result_bytes=1_999)
    opened = ChdbEngine(settings, LetThrough(), lambda _folder: connection)
    connection.taken.clear()
    return opened


def test_a_result_that_is_too_long_as_text_is_refused_to_a_reader_before_it_is_copied(
    engine: ChdbEngine, connection: Connection
) -> None:
    with pytest.raises(EngineError, match="more than 1999 bytes") as caught:
        engine.answer(Query("SELECT 1"))
    assert caught.value.code == 396
    assert not connection.taken


def test_a_result_of_the_admin_may_be_longer(engine: ChdbEngine) -> None:
    assert len(engine.answer(Query("SELECT 1", may_write=True)).data) == 2_000
