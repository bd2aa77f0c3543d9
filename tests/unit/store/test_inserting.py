"""A failed insert is retried with increasing delays, and finally given up."""

import pyarrow as pa
import pytest

from services.store.engine import EngineError, InsertTimeoutError
from services.store.projection.inserting import Inserter, RefusedValuesError
from services.store.settings import StoreSettings

pytestmark = pytest.mark.unit

BLOCK = pa.table({"_topic": ["t", "t"], "_partition": [0, 0], "_offset": [4, 5], "value": [1, 2]})


class Engine:
    """Fails as often as given; `kept` are the offsets in its table."""

    def __init__(self, *errors: EngineError | None) -> None:
        self.errors = list(errors)
        self.kept: list[int] = []

    def rows(self, _sql: str) -> list[dict[str, int]]:
        return [{"_partition": 0, "next_offset": max(self.kept) + 1}] if self.kept else []

    def insert(self, _table: str, block: pa.Table) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is None or "after" in str(error):
            self.kept += block["_offset"].to_pylist()
        if error is not None:
            raise error


class Time:
    """A clock that only waiting advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def insert(engine: Engine, retry_s: float = 60, stopped: bool = False) -> float:
    time = Time()
    settings = StoreSettings(insert_retry_seconds=retry_s)
    inserter = Inserter(engine, settings, lambda: stopped, time.pause, lambda: time.now_s)
    try:
        inserter.insert("t", BLOCK)
    finally:
        engine.waited_s = time.now_s
    return time.now_s


def test_an_insert_that_works_waits_for_nothing():
    engine = Engine()
    assert insert(engine) == 0
    assert engine.kept == [4, 5]


def test_an_insert_that_fails_is_made_again_after_longer_and_longer():
    engine = Engine(*(EngineError("before") for _ in range(3)))
    assert insert(engine) == 0.25 + 0.5 + 1
    assert engine.kept == [4, 5]


def test_what_was_inserted_although_it_failed_is_not_inserted_again():
    engine = Engine(EngineError("after"))
    insert(engine)
    assert engine.kept == [4, 5]


def test_an_insert_that_never_works_ends_with_its_error_in_time():
    engine = Engine(*(EngineError(f"before {number}") for number in range(100)))
    with pytest.raises(EngineError, match="before 7"):
        insert(engine, retry_s=20)
    assert engine.waited_s == 0.25 + 0.5 + 1 + 2 + 4 + 5 + 5  # the next 5 s would exceed the limit


def test_a_store_that_is_told_to_stop_does_not_try_again():
    engine = Engine(EngineError("before"))
    with pytest.raises(EngineError):
        insert(engine, stopped=True)
    assert engine.waited_s == 0


def test_an_insert_without_an_answer_in_time_is_left_to_the_next_start():
    engine = Engine(InsertTimeoutError("after"))
    with pytest.raises(InsertTimeoutError):
        insert(engine)
    assert engine.waited_s == 0


def test_values_that_the_engine_refuses_are_refused_at_once_and_an_engine_that_is_full_is_not():
    refusing = Engine(EngineError("Code: 469. DB::Exception: Constraint is violated"))
    with pytest.raises(RefusedValuesError, match="Code: 469"):
        insert(refusing)
    assert refusing.waited_s == 0
    busy = Engine(EngineError("Code: 241. DB::Exception: Memory limit exceeded"))
    insert(busy)
    assert (busy.waited_s, busy.kept) == (0.25, [4, 5])
