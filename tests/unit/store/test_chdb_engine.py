"""Answers of the embedded engine."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from services.store.engine import EngineError, Query
from services.store.engines import chdb_engine
from services.store.engines.chdb_engine import ChdbEngine
from services.store.policy.query_policy import JUDGE, EngineReads, Statement
from services.store.settings import StoreSettings

pytestmark = pytest.mark.unit


class Result:
    """A result of 2,000 bytes. taken: whether they have been copied to Python."""

    taken = False

    def size(self) -> int:
        return 2_000

    def bytes(self) -> bytes:
        Result.taken = True
        return b'{"name": "x"}'.ljust(2_000)

    def storage_rows_read(self) -> int:
        return 0

    storage_bytes_read = rows_read = bytes_read = rows_written = bytes_written = storage_rows_read


class Connection:
    """Gives this result to every statement."""

    def __init__(self, _folder: str) -> None:
        pass

    def query(self, *_given: str | Mapping[str, str]) -> Result:
        return Result()

    def close(self) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChdbEngine:
    """An engine with that connection, which limits results to 1,999 bytes."""

    def statement(query: Query, _reads: EngineReads) -> Statement:
        return Statement(query.text, query.parameters, query.output_format)

    monkeypatch.setattr(JUDGE, "statement", statement)
    monkeypatch.setattr(chdb_engine.chdb, "connect", Connection)
    opened = ChdbEngine(StoreSettings(data=tmp_path, query_max_result_bytes=1_999))
    monkeypatch.setattr(Result, "taken", False)
    return opened


def test_a_result_that_is_too_long_as_text_is_refused_to_a_reader_before_it_is_copied(
    engine: ChdbEngine,
) -> None:
    with pytest.raises(EngineError, match="more than 1999 bytes") as caught:
        engine.answer(Query("SELECT 1"))
    assert caught.value.code == 396
    assert not Result.taken


def test_a_result_of_the_admin_may_be_longer(engine: ChdbEngine) -> None:
    assert len(engine.answer(Query("SELECT 1", may_write=True)).data) == 2_000
