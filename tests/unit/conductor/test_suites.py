"""A suite starts its next run when it is due and the machine is idle."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas import catalogue
from schemas.events import BusEvent, FigureColumns, PhaseStarted, SuiteChanged
from schemas.protocol import RunRequest
from services.conductor.settings import ConductorSettings
from services.conductor.suites import running
from services.conductor.suites.analysis import Analysis
from services.conductor.suites.running import Suites
from services.conductor.suites.suite_state import SuiteState
from services.definitions.workloads import load_workload
from services.runtime.kafka import KafkaUnavailableError
from tests.unit.conductor.suites import a_step, a_suite

pytestmark = pytest.mark.unit


class Bus:
    """Batches of records to deliver, and what was published."""

    def __init__(self) -> None:
        self.batches: list[list[BusEvent]] = []
        self.told: list[dict[str, Any]] = []
        self.is_gone = False

    def poll(self, timeout_s: float) -> list[BusEvent]:
        return self.batches.pop(0) if self.batches else []

    def rest(self) -> Iterator[BusEvent]:
        if self.is_gone:
            raise KafkaUnavailableError("No broker.")
        while self.batches:
            yield from self.poll(0)

    def publish(self, event: Any) -> None:
        if isinstance(event, SuiteChanged):
            self.told.append(event.detail)

    def close(self) -> None:
        """Do nothing."""


class FakeAnalysis(Analysis):
    """Looks for nothing. begun: the runs after which it would have. is_busy: whether it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.is_busy = False

    def begin(self, run_id: str) -> None:
        super().end()
        self.want("")
        self.begun.append(run_id)

    def goes_on(self) -> bool:
        return self.is_busy


class Bench:
    """A conductor's suite of two steps, its clock, and the machine around it (two cores). rate: the
    sustainable rate that the store knows."""

    def __init__(self, data: Path) -> None:
        self.bus, self.now_ms, self.analysis = Bus(), 1_000_000, FakeAnalysis()
        self.rate: float | None = None
        self.notes = SuiteState(data, "stack")
        suite = a_suite(a_step(100), a_step(200), pause_s=60, busy_share=0.4, patience_s=300)
        self.suites = Suites(
            ConductorSettings(),
            self.bus,  # type: ignore[arg-type]
            self.notes,
            suite,
            clock=lambda: self.now_ms,
            cores=2,
            machine_cores=16,
            open_bus=lambda *_: self.bus,  # type: ignore[arg-type, return-value]
            analysis=self.analysis,
            ask=self.ask,
        )

    def ask(self, _url: str, _sql: str, /, **_: str) -> list[dict[str, Any]]:
        return (
            []
            if self.rate is None
            else [{"rate_per_second": self.rate, "not_sustained_per_second": None}]
        )

    def pass_s(self, seconds: int, machine_cores: float, seen: str = "kafka") -> None:
        for _ in range(seconds):
            self.now_ms += 1000
            sample = {"time": self.now_ms, "service": "machine", "interval_s": 1.0}
            usage = sample | {"cpu_seconds": machine_cores}
            ours = sample | {"service": seen, "cpu_seconds": 0.0}
            self.bus.batches.append(
                [
                    FigureColumns(catalogue.RESOURCES, usage),
                    FigureColumns(catalogue.RESOURCES, ours),
                ]
            )

    def measured(self, request: RunRequest) -> None:
        self.bus.batches.append([PhaseStarted(run_id=request.run_id, phase="measure")])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_bus_is_read_only_for_a_suite(tmp_path: Path) -> None:
    opened: list[Bus] = []

    def open_bus(*_: object) -> Any:
        opened.append(Bus())
        return opened[-1]

    events: Any = Bus()
    notes = SuiteState(tmp_path, "stack")
    suites = Suites(ConductorSettings(), events, notes, None, open_bus=open_bus)
    assert suites.due() is None
    assert not opened
    for _ in range(2):
        suites.take(a_suite(a_step(100)))
    assert len(opened) == 1


def test_change_points_are_searched_after_runs_of_watches_without_a_suite(tmp_path: Path) -> None:
    events: Any = Bus()
    analysis = FakeAnalysis()
    notes = SuiteState(tmp_path, "stack")
    suites = Suites(ConductorSettings(), events, notes, None, analysis=analysis)
    assert suites.due() is None
    assert analysis.begun == []
    suites.look_for_changes("watch-orders-20260520-200000")
    assert suites.due() is None
    assert analysis.begun == ["watch-orders-20260520-200000"]


def test_runs_follow_each_other_with_a_pause_between(bench: Bench) -> None:
    bench.pass_s(10, machine_cores=0.2)
    first = bench.suites.due()
    assert first is not None
    assert first.suite is not None
    assert (first.suite.round, first.suite.step, bench.notes.run_id) == (1, 1, first.run_id)
    assert first.workload.validity.max_others_share == 0.4
    bench.measured(first)
    bench.suites.concluded(first, interrupted=False)
    assert bench.suites.due() is None
    bench.pass_s(60, machine_cores=0.2)
    second = bench.suites.due()
    assert second is not None
    assert second.suite is not None
    assert second.suite.step == 2
    assert [told["state"] for told in bench.bus.told] == ["running", "pausing", "running"]


def test_a_pause_that_only_the_analysis_lengthens_is_told_once(bench: Bench) -> None:
    bench.pass_s(10, machine_cores=0.2)
    first = bench.suites.due()
    assert first is not None
    bench.measured(first)
    bench.suites.concluded(first, interrupted=False)
    bench.analysis.is_busy = True
    for _ in range(70):
        assert bench.suites.due() is None
        bench.pass_s(1, machine_cores=0.2)
    pauses = [told["next_at_ms"] for told in bench.bus.told if told["state"] == "pausing"]
    assert pauses == [1_010_000 + 60_000, None]


def test_a_busy_machine_is_waited_for_but_not_for_ever(bench: Bench) -> None:
    bench.pass_s(10, machine_cores=1.5)
    assert bench.suites.due() is None
    assert bench.bus.told[-1]["reason"] == "other processes use 1.5 of 2 cores"
    bench.pass_s(299, machine_cores=1.5)
    assert bench.suites.due() is None
    bench.pass_s(1, machine_cores=1.5)
    assert bench.suites.due() is not None
    assert [told["state"] for told in bench.bus.told] == ["waiting", "running"]


def test_use_of_the_whole_machine_is_compared_with_all_its_cores(bench: Bench) -> None:
    """In a container of its own the collector sees no other service, and the conductor has 2 cores
    of 16. The run used 4 for 300 s; of 8 that are allowed this needs no longer pause."""
    assert bench.suites.due() is None
    bench.pass_s(15, machine_cores=0.2, seen="collector")
    first = bench.suites.due()
    assert first is not None
    bench.measured(first)
    bench.pass_s(300, machine_cores=4, seen="collector")
    bench.suites.concluded(first, interrupted=False)
    assert bench.suites.due() is None
    bench.pass_s(60, machine_cores=0.2, seen="collector")
    assert bench.suites.due() is None
    bench.pass_s(15, machine_cores=0.2, seen="collector")
    assert bench.suites.due() is not None


def test_a_run_is_not_to_be_used_when_others_were_as_busy_as_would_have_been_waited_for() -> None:
    workload = a_step(400).workload
    assert running.undisturbed(workload, 0.4).validity.max_others_share == 0.4
    assert running.undisturbed(workload, 1).validity.max_others_share is None
    search = load_workload("sustainable-throughput")
    assert running.undisturbed(search, 0.4).validity.max_others_share is None
    own = workload.validity.model_copy(update={"max_others_share": 0.1})
    given = workload.model_copy(update={"validity": own})
    assert running.undisturbed(given, 0.4).validity.max_others_share == 0.1


def test_a_broker_that_is_gone_after_a_run_does_not_end_the_suite(bench: Bench) -> None:
    bench.pass_s(10, machine_cores=0.2)
    first = bench.suites.due()
    assert first is not None
    bench.bus.is_gone = True
    bench.suites.concluded(first, interrupted=False)
    bench.pass_s(600, machine_cores=0.2)
    assert bench.suites.due() is not None


def test_a_run_that_was_interrupted_is_done_again(bench: Bench) -> None:
    bench.pass_s(10, machine_cores=0.2)
    first = bench.suites.due()
    assert first is not None
    bench.suites.concluded(first, interrupted=True)
    bench.pass_s(60, machine_cores=0.2)
    again = bench.suites.due()
    assert again is not None
    assert (again.suite, again.run_id != first.run_id) == (first.suite, True)


@pytest.fixture
def rate_bench(bench: Bench) -> Bench:
    """The first of the two steps runs at nine tenths of the sustainable rate."""
    share, other = a_step(400), a_step(200)
    workload = share.workload.model_copy(update={"sustainable_share": 0.9})
    steps = (share.model_copy(update={"workload": workload}), other)
    suite = a_suite(*steps, pause_s=60, busy_share=1)
    bench.suites.take(suite)
    return bench


SHARE_LABEL = "latency at 90% of the sustainable rate on spark-realtime (parse)"


UNKNOWN = "No sustainable rate is known for spark-realtime"


def test_a_share_of_the_sustainable_rate_is_taken_of_the_one_that_is_known_then(
    rate_bench: Bench,
) -> None:
    rate_bench.rate = 5000
    request = rate_bench.suites.due()
    assert request is not None
    assert request.workload.load.rate_per_second == 4500


def test_without_a_known_rate_the_step_is_skipped_and_it_is_told_why(rate_bench: Bench) -> None:
    assert rate_bench.suites.due() is None
    told = rate_bench.bus.told[-1]
    assert (told["state"], told["step"], told["label"]) == ("skipping", 1, SHARE_LABEL)
    assert told["reason"].startswith(UNKNOWN)
    following = rate_bench.suites.due()
    assert following is not None
    assert following.suite is not None
    assert following.suite.step == 2
    assert rate_bench.bus.told[-1]["skipped"] == [f"{SHARE_LABEL}: {told['reason']}"]


def test_a_step_that_was_skipped_takes_place_in_the_next_round_when_it_can(
    rate_bench: Bench,
) -> None:
    rate_bench.suites.due()
    following = rate_bench.suites.due()
    assert following is not None
    rate_bench.measured(following)
    rate_bench.suites.concluded(following, interrupted=False)
    rate_bench.pass_s(60, machine_cores=0.2)
    rate_bench.rate = 5000
    found = rate_bench.suites.due()
    assert found is not None
    assert found.suite is not None
    assert (found.suite.round, found.suite.step) == (2, 1)
    assert rate_bench.bus.told[-1]["skipped"] == []


def test_a_suite_of_nothing_but_skipped_steps_rests(bench: Bench) -> None:
    share = a_step(400)
    workload = share.workload.model_copy(update={"sustainable_share": 0.9})
    suite = a_suite(share.model_copy(update={"workload": workload}), pause_s=60, busy_share=1)
    bench.suites.take(suite)
    for _ in range(3):
        assert bench.suites.due() is None
    assert [told["state"] for told in bench.bus.told] == ["skipping", "pausing"]
    assert bench.bus.told[-1]["next_at_ms"] == bench.now_ms + 120_000
