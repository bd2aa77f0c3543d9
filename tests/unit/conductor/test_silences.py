"""Times without results, at all and of each watch."""

from pathlib import Path

import pytest

from schemas.events import LifecycleEvent
from services.conductor.notices.notice import Notice
from services.conductor.notices.telling import MOST_WATCHES, Outbox, Quiet, Silences
from services.watcher.counting import RunTotals
from services.watcher.runs import WatchRuns
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit

MINUTE_MS = 60_000
A_RUN = "20261125-030000-ab12"
HOUR = 494_252


class Bench:
    """Silences of half an hour, with a clock in minutes."""

    def __init__(self, folder: Path, has_suite: bool, max_watches: int = MOST_WATCHES) -> None:
        self.outbox = Outbox(folder, (), "stack")
        self.silences = Silences(self.outbox, lambda: has_suite, max_watches)
        self.runs = {name: WatchRuns(a_watch(name=name), {}, "6f") for name in ("orders", "clicks")}

    def begin(self, name: str, minute: int, hour: int = HOUR) -> None:
        self._event(next(self.runs[name].begin(hour)), minute)

    def conclude(self, name: str, minute: int, ended: bool) -> None:
        runs = self.runs[name]
        *_, last = runs.conclude(HOUR, RunTotals(), (0, 1), {}, ended)
        self._event(last, minute)

    def _event(self, event: LifecycleEvent, minute: int) -> None:
        self.silences.event(event, minute * MINUTE_MS)

    def result(self, of: str, minute: int) -> list[str]:
        run_id = self.runs[of].id_of(HOUR) if of in self.runs else of
        return titles(self.silences.result(run_id, 7, minute * MINUTE_MS))

    def look(self, minute: int) -> list[str]:
        return titles(self.silences.look(30, minute * MINUTE_MS))


def titles(found: list[Notice]) -> list[str]:
    return [one.title for one in found]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, has_suite=False)


@pytest.fixture
def suite_bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, has_suite=True)


def test_a_watch_without_results_is_told_once_beside_a_suite_that_has_some(
    suite_bench: Bench,
) -> None:
    suite_bench.begin("orders", 0)
    suite_bench.begin("clicks", 0)
    assert suite_bench.result("orders", 5) == []
    for minute in (29, 34):
        suite_bench.result(A_RUN, minute)
        suite_bench.result("clicks", minute)
        assert suite_bench.look(minute) == []
    assert suite_bench.look(35) == ["No results of the watch orders for 30 minutes"]
    assert suite_bench.look(36) == []
    again = ["Results of the watch orders have resumed after 40 minutes"]
    assert suite_bench.result("orders", 45) == again
    assert suite_bench.result("orders", 46) == []


def test_a_watch_that_never_had_a_result_is_told(suite_bench: Bench) -> None:
    suite_bench.begin("orders", 0)
    suite_bench.begin("orders", 20, HOUR + 1)  # another hour is no result
    suite_bench.result(A_RUN, 29)
    assert suite_bench.look(30) == ["No results of the watch orders for 30 minutes"]


def test_without_any_results_the_watches_are_not_told_too(bench: Bench) -> None:
    bench.begin("orders", 0)
    bench.begin("clicks", 0)
    bench.result("orders", 1)
    assert bench.look(31) == ["No results for 30 minutes"]
    assert bench.look(32) == []
    assert bench.result("clicks", 33) == ["Results have resumed after 32 minutes"]
    assert bench.look(33) == ["No results of the watch orders for 30 minutes"]


@pytest.mark.parametrize("ended", [True, False])
def test_a_watch_that_was_ended_is_not_waited_for(suite_bench: Bench, ended: bool) -> None:
    suite_bench.begin("orders", 0)
    suite_bench.conclude("orders", 5, ended)
    suite_bench.result("orders", 6)  # read after its conclusion
    suite_bench.result(A_RUN, 40)
    assert suite_bench.look(40) == (
        [] if ended else ["No results of the watch orders for 30 minutes"]
    )


def test_silence_is_known_after_a_restart_of_the_conductor_but_not_of_the_stack(
    tmp_path: Path, suite_bench: Bench
) -> None:
    suite_bench.begin("orders", 0)
    suite_bench.result(A_RUN, 29)
    suite_bench.look(30)
    suite_bench.outbox.write()
    assert Outbox(tmp_path, (), "stack").watches == {"orders": Quiet(since_ms=0, told=True)}
    assert Outbox(tmp_path, (), "other").watches == {}


def test_nothing_is_told_without_a_limit(bench: Bench) -> None:
    bench.begin("orders", 0)
    assert bench.silences.look(0, 10**12) == []


def test_of_too_many_watches_the_oldest_is_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path, has_suite=False, max_watches=1)
    bench.begin("orders", 0)
    bench.begin("clicks", 0)
    assert list(bench.outbox.watches) == ["clicks"]


def test_silences_of_watches_have_ids_of_their_own(suite_bench: Bench) -> None:
    suite_bench.begin("orders", 0)
    found = suite_bench.silences.look(30, 30 * MINUTE_MS)
    assert [one.id for one in found] == ["no-results/0"]
    suite_bench.result(A_RUN, 31)
    found = suite_bench.silences.look(30, 31 * MINUTE_MS)
    assert [one.id for one in found] == ["no-results/orders/0"]
