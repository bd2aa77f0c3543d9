"""The baselines of a suite's thresholds, and when pipelines are kept for its next run."""

from dataclasses import dataclass
from typing import Any

import pytest

from analysis.thresholds import judged
from schemas.events import Drained
from schemas.protocol import Phases
from schemas.suite import Pace
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError
from services.conductor.run_state import RunState
from services.conductor.suites.running import Keeping, go_on, with_baseline
from services.readmodel import history
from services.readmodel.history import as_figures
from tests.unit.conductor.suites import a_step
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

ROW: dict[str, Any] = {
    "pipeline": "spark-realtime", "stage": "join", "measure_s": 30, "measured_outputs": 6000,
    "cpu_cores": 0.5, "memory_bytes": 400_000_000, "heap_bytes": 90_000_000,
    "core_seconds_per_million_records": 900.0,
    "lag_records": 7, "exact": 6000, "wrong": 0, "missing": 1, "late": 0, "duplicate": 0,
    "unexpected": 0, "input_records": 12_000, "input_per_second": 400.0,
    "send_delay_p50_ms": 0.1, "send_delay_p99_ms": 2.0,
    "send_delay_max_ms": 8.0,
}  # fmt: skip
LATENCY: dict[str, Any] = {
    "pipeline": "spark-realtime", "stage": "join", "definition": "latest", "min_ms": 1, "p5_ms": 2,
    "p25_ms": 4, "p50_ms": 5, "p75_ms": 7, "p90_ms": 8, "p95_ms": 9, "p99_ms": 20, "p999_ms": 30,
    "p99999_ms": 35, "max_ms": 40, "mean_ms": 5.5, "middle_ms": 5.25,
}  # fmt: skip


def asked(*thresholds: str) -> Any:
    request = a_request()
    workload = request.workload.model_copy(update={"thresholds": thresholds})
    return request.model_copy(update={"workload": workload})


@dataclass
class Store:
    """Answers with the latencies of runs, and with rates that searches found."""

    latencies: dict[str, dict[str, Any]]
    doubtful: str = ""
    rate_per_ms: float | None = 1000.0

    def __call__(self, _url: str, sql: str, /, run_id: str = "", **_: str) -> list[dict[str, Any]]:
        if sql == history.LAST_GOOD:
            return [{"run_id": run, "doubtful": run == self.doubtful} for run in self.latencies]
        if "tidegauge.figures" in sql:
            return [ROW]
        if "tidegauge.latency_summary" in sql:
            return [self.latencies[run_id]]
        if self.rate_per_ms is None:
            return []
        return [{"rate_per_second": self.rate_per_ms * self.latencies[run_id]["p99_ms"]}]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("join.p99_ms <= 1", 20),
        ("join.mean_ms <= 1", 5.5),
        ("join.middle_ms <= 1", 5.25),
        ("join.missing <= 0", 1),
        ("join.records_per_second <= 1", 200),
        ("pipeline.cpu_cores <= 0", 0.5),
        ("pipeline.memory_mb <= 0", 400),
        ("pipeline.heap_mb <= 0", 90),
        ("pipeline.lag_records <= 0", 7),
        ("input.send_delay_p99_ms <= 0", 2.0),
        ("input.send_delay_max_ms <= 0", 8.0),
        ("input.records_per_second <= 0", 400.0),
    ],
)
def test_every_figure_of_a_past_run_can_be_a_baseline(line: str, value: float) -> None:
    (row,) = judged([parse_threshold(line)], as_figures([ROW], [LATENCY]))
    assert row.value == value


def test_a_baseline_becomes_numbers() -> None:
    known = {"run-1": LATENCY}
    ask = Store(known, rate_per_ms=None)
    found = with_baseline(
        asked("join.p99_ms <= 1.1 * baseline", "join.p50_ms <= 9"), "", "url", ask
    )
    assert found.workload.thresholds == (
        "spark-realtime: join.p99_ms <= 22 # 1.1 * baseline (20 in run-1)",
        "join.p50_ms <= 9",
    )


def test_the_baseline_is_the_median_of_the_last_good_runs() -> None:
    p99_ms = {"run-4": 40, "run-3": 22, "run-2": 20, "run-1": 18}

    known = {run: LATENCY | {"p99_ms": of_run} for run, of_run in p99_ms.items()}
    ask = Store(known, doubtful="run-1")
    lines = (
        "join.p99_ms <= 1.1 * baseline",
        "pipeline.sustainable_rate_per_second >= 0.9 * baseline",
    )
    found = with_baseline(asked(*lines), "", "url", ask)
    assert found.workload.thresholds == (
        "spark-realtime: join.p99_ms <= 24.2 # 1.1 * baseline (22 in the median of 3 runs)",
        "spark-realtime: pipeline.sustainable_rate_per_second >= 19800 "
        "# 0.9 * baseline (22000 in the median of 3 runs)",
    )


def test_doubtful_runs_are_a_baseline_only_if_there_are_no_others() -> None:
    rows = [{"run_id": "run-2", "doubtful": True}, {"run_id": "run-1", "doubtful": True}]
    good = history.last_good_runs(a_request(), "url", lambda *_, **__: rows)
    assert good == ["run-2", "run-1"]


def no_rows(_url: str, _sql: str, /, **_: str) -> list[dict[str, Any]]:
    return []


def test_without_a_run_to_compare_with_the_others_stay() -> None:
    found = with_baseline(asked("join.p99_ms <= baseline", "join.p50_ms <= 9"), "", "url", no_rows)
    assert found.workload.thresholds == ("join.p50_ms <= 9",)


def test_a_named_run_that_is_not_there_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="baseline run-7: run-7 has no figure for"):
        with_baseline(asked("join.p99_ms <= baseline"), "run-7", "url", no_rows)


def test_without_a_baseline_nothing_is_asked() -> None:
    request = asked("join.p50_ms <= 9")
    assert with_baseline(request, "", "nowhere") is request


def a_good_state() -> RunState:
    state = RunState(a_request())
    counts = dict.fromkeys(("exact", "wrong", "missing", "late", "duplicate", "unexpected"), 0)
    state.drained = Drained(verdicts={"spark-realtime": {"join": counts}})
    return state


def test_pipelines_that_were_kept_are_found_once_and_in_time() -> None:
    request, keeping = a_request(), Keeping()
    assert keeping.keep(request, a_good_state(), until_ms=600_000)
    assert keeping.take(request, 500_000)
    assert not keeping.take(request, 500_000)
    assert keeping.keep(request, a_good_state(), until_ms=600_000)
    assert not keeping.take(request, 590_000)  # they may end before it asks for them


def test_other_pipelines_or_stages_are_not_those_that_were_kept() -> None:
    request, keeping = a_request(), Keeping()
    assert keeping.keep(request, a_good_state(), until_ms=600_000)
    assert not keeping.take(request.model_copy(update={"stages": ("parse",)}), 0)
    assert keeping.keep(request, a_good_state(), until_ms=600_000)
    assert not keeping.take(request.model_copy(update={"profile": "citation"}), 0)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"sustainable_share": 0.9}, False),
        ({"phases": Phases(warm_up_s=60)}, False),
        ({"phases": Phases(warm_up_s=59)}, True),
        ({"phases": Phases(warm_up_s=180, until_steady=True)}, False),
    ],
)
def test_pipelines_that_compile_otherwise_are_not_used_again(
    changes: dict[str, Any], same: bool
) -> None:
    request, keeping = a_request(), Keeping()
    workload = request.workload.model_copy(update=changes)
    assert keeping.keep(request, a_good_state(), until_ms=600_000)
    assert keeping.take(request.model_copy(update={"workload": workload}), 0) is same
    one = a_step(100)
    following = one.model_copy(update={"workload": one.workload.model_copy(update=changes)})
    assert go_on(Pace(pause_s=60), one, following) is same


def test_pipelines_of_a_run_that_failed_are_not_kept() -> None:
    state = a_good_state()
    state.failure = "gone"
    assert not Keeping().keep(a_request(), state, until_ms=600_000)


def test_which_steps_go_on_with_the_pipelines_of_another() -> None:
    pace, one = Pace(pause_s=60), a_step(100)
    assert go_on(pace, one, a_step(200))
    assert not go_on(Pace(pause_s=60, keep_warm_s=60), one, a_step(200))
    assert not go_on(pace, one, one.model_copy(update={"stages": ("join",)}))
    for change in ({"kills": ({"target": "driver"},)}, {"pipelines_start_s": 5}):
        workload = one.workload.model_copy(update=change)
        assert not go_on(pace, one, one.model_copy(update={"workload": workload}))
