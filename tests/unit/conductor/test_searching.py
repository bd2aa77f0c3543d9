"""A search by two conductors: the second resumes where the first was stopped."""

from typing import Any

import pytest

from schemas.protocol import RunRequest
from schemas.search import Search
from services.conductor.run_verdict import Conclusion
from services.conductor.search import searching
from services.conductor.search.bisection import Done, Planned, SoFar
from services.conductor.search.policies import Judged, Observation, Second, StageObserved
from services.conductor.search.searching import Searching
from services.conductor.settings import ConductorSettings
from services.runtime.domains import load_domain
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit

CAPACITY_PER_SECOND = 1_000


class Run:
    """A run of a pipeline that sustains CAPACITY_PER_SECOND."""

    carried_out: list[tuple[str, float]]

    def __init__(self, request: RunRequest, *_rest: Any, **_named: Any) -> None:
        self.request = request

    def observe(self) -> Observation:
        rate = self.request.workload.load.rate_per_second
        Run.carried_out.append((self.request.run_id, rate))
        medians = dict.fromkeys(range(15), 100.0 if rate <= CAPACITY_PER_SECOND else 20_000.0)
        seconds = tuple(Second(at, round(rate), 0.0) for at in range(15))
        return Observation((StageObserved("parse", medians, seconds),))

    def limited_by(self) -> str:
        return "generator"

    def tell(self, conclusion: Conclusion) -> None:
        """Ignore the conclusion."""


class Events:
    """Published conclusions."""

    def __init__(self) -> None:
        self.conclusions: list[tuple[str, Any]] = []

    def conclusion(self, kind: str, _run_id: str, _reasons: Any, detail: Any) -> None:
        self.conclusions.append((kind, detail))

    def lifecycle(self, *_rest: Any, **_named: Any) -> None:
        """Ignore lifecycle events."""


def observe(self: Searching, request: RunRequest, keep: bool) -> Any:
    run = Run(request)
    return run, Conclusion(True, (), {"clean": True}), run.observe()


def search_after(monkeypatch: pytest.MonkeyPatch, so_far: SoFar) -> tuple[list[Any], Events]:
    monkeypatch.setattr(searching, "Run", Run)
    monkeypatch.setattr(Searching, "_observe", observe)
    Run.carried_out, events = [], Events()
    request = a_request()
    load = request.workload.load.model_copy(update={"rate_per_second": 500})
    search = Search(precision=0.5, factor=2, budget_s=100)
    workload = request.workload.model_copy(update={"search": search, "load": load})
    request = request.model_copy(update={"workload": workload})
    settings = ConductorSettings()
    Searching(request, settings, events, lambda: "", so_far).execute()  # type: ignore[arg-type]
    return Run.carried_out, events


def test_it_repeats_the_step_that_was_lost_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Done(500, long=False), Done(1000, long=False))
    so_far = SoFar(steps, lost=(f"{RUN_ID}-step-03",), spent_s=40)
    carried_out, events = search_after(monkeypatch, so_far)
    assert carried_out == [
        (f"{RUN_ID}-step-04", 2000),
        (f"{RUN_ID}-step-05", 1414),
        (f"{RUN_ID}-step-06", 1000),
        (RUN_ID, 873),  # nine tenths of 1000 / (1 + 0.03 / 0.97)
    ]
    kind, result = events.conclusions[-1]
    assert kind == "sustainable_throughput"
    assert [step["rate_per_second"] for step in result["steps"]] == [500, 1000, 2000, 1414, 1000]
    assert result["limited_by"] == "generator"
    assert [step["limited_by"] for step in result["steps"]] == ["", "", "generator"] * 1 + [
        "generator",
        "",
    ]
    assert (result["lost_steps"], result["verified"]) == ([f"{RUN_ID}-step-03"], True)


def test_the_time_that_was_spent_before_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    so_far = SoFar((Done(500, long=False), Done(1000, long=False)), spent_s=100)
    carried_out, _events = search_after(monkeypatch, so_far)
    assert carried_out == [(RUN_ID, 873)]


def test_a_step_that_only_the_processor_refused_was_limited_by_the_pipeline() -> None:
    planned, run = Planned(500, long=False), Run(a_request())
    by_cpu = Judged(("Mean CPU 80%.",), by_cpu_alone=True)
    assert searching.done_step(planned, by_cpu, run).limited_by == "pipeline"  # type: ignore[arg-type]
    late = Judged(("parse: median latency rises.",))
    assert searching.done_step(planned, late, run).limited_by == "generator"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("domain", "stages", "warm"),
    [
        ("traffic", ("parse", "tumbling", "sliding"), True),
        ("gem_packs", ("ingest", "parse"), True),
        ("gem_packs", ("parse", "revenue"), False),
        ("gem_packs", ("conversions",), False),
    ],
)
def test_pipelines_stay_warm_unless_event_time_closes_their_windows(
    domain: str, stages: tuple[str, ...], warm: bool
) -> None:
    changes = {"domain": load_domain(domain).spec, "stages": stages}
    assert searching.can_stay_warm(a_request().model_copy(update=changes)) is warm
