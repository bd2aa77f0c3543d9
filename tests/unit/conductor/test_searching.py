"""A search by two conductors: the second resumes where the first was stopped."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.domain import DomainSpec
from schemas.events import Conclusion
from schemas.observation import Second, StageObserved, StepObservation
from schemas.protocol import PhasePlan, RunRequest
from schemas.search import Search
from schemas.validation_errors import DefinitionError
from schemas.workload import Kill
from services.conductor.orphaned_runs import MOST_LOST
from services.conductor.run_verdict import RunVerdict
from services.conductor.search import bisection, searching
from services.conductor.search.bisection import Done, Planned, SoFar
from services.conductor.search.own_policy import PolicyError, own_policy
from services.conductor.search.policies import StepVerdict
from services.conductor.search.searching import ObservedRun, Searching
from services.conductor.settings import ConductorSettings
from services.definitions.domains import load_domain
from services.definitions.trusted import keep_definitions
from services.definitions.workloads import load_workload
from services.runtime.settings import ROOT
from tests.end_to_end.documented import of_the_machine
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit

CAPACITY_PER_SECOND = 1_000
EXAMPLE = ROOT / "examples" / "own_policy" / "growing-queue.toml"
ENDLESS = "def judge(step):\n    while True:\n        pass\n"


class Run:
    """An ended run. is_lost: whether its load never began. told: receives its conclusion."""

    def __init__(self, request: RunRequest, told: list[RunVerdict], is_lost: bool = False) -> None:
        phases = PhasePlan(load_start_ms=0, phases=request.workload.phases)
        self.phases = None if is_lost else phases
        self._told = told

    def limited_by(self, *, by_input_alone: bool = False) -> str:
        return "generator"

    def limited_in_pipeline(self) -> str:
        return "heap"

    def tell(self, conclusion: RunVerdict) -> None:
        """Keep the conclusion."""
        self._told.append(conclusion)


class Runs:
    """Runs of a pipeline that sustains CAPACITY_PER_SECOND, and must be started anew after more.

    crashes: how many runs end before their load begins. observe: what is observed of a run.
    """

    def __init__(self, crashes: int = 0) -> None:
        self.carried_out: list[tuple[str, float]] = []
        self.told: list[RunVerdict] = []
        self._crashes = crashes

    def observe(self, request: RunRequest) -> StepObservation:
        rate = request.workload.load.rate_per_second
        medians = dict.fromkeys(range(15), 100.0 if rate <= CAPACITY_PER_SECOND else 20_000.0)
        seconds = tuple(Second(at, round(rate), 0.0) for at in range(15))
        return StepObservation((StageObserved("parse", medians, seconds),))

    def refused(self, request: RunRequest, reason: str) -> tuple[Run, RunVerdict]:
        detail = {"clean": False, "thresholds": list(request.workload.thresholds)}
        return Run(request, self.told), RunVerdict(False, (reason,), detail)

    def observed(self, request: RunRequest, _interrupted: Any, *, warm: bool, keep: bool) -> Any:
        if self._crashes:
            self._crashes -= 1
            reasons = ("The driver crashed.",)
            conclusion = RunVerdict(False, reasons, {"clean": False})
            lost, silent = (
                Run(request, self.told, is_lost=True),
                StepObservation((), trouble=reasons),
            )
            return ObservedRun(lost, conclusion, silent, warm)  # type: ignore[arg-type]
        # Any value stands for a row: the conductor judges the lines of the request of a run.
        detail = {"clean": True, "thresholds": list(request.workload.thresholds)}
        rate = request.workload.load.rate_per_second
        moving = ["spark-realtime parse: p50 rose by 900 ms"] if rate > CAPACITY_PER_SECOND else []
        detail["warm_up"] = {"steady": not moving, "moving": moving, "seconds": 23}
        self.carried_out.append((request.run_id, rate))
        run, conclusion = Run(request, self.told), RunVerdict(True, (), detail)
        is_warm = keep and rate <= CAPACITY_PER_SECOND
        return ObservedRun(run, conclusion, self.observe(request), is_warm)  # type: ignore[arg-type]


class Events:
    """Published conclusions."""

    def __init__(self) -> None:
        self.conclusions: list[tuple[str, Any]] = []
        self.reasons: list[tuple[str, ...]] = []

    def publish(self, event: Any) -> None:
        """Keep conclusions."""
        if isinstance(event, Conclusion):
            self.conclusions.append((event.kind, event.detail))
            self.reasons.append(event.invalid_reasons)


def search_after(
    so_far: SoFar,
    thresholds: tuple[str, ...] = (),
    cancelled_in: str = "",
    runs: Runs | None = None,
) -> tuple[Runs, Events]:
    """The runs carried out, and the events. cancelled_in: the run in which the user cancels."""
    runs, events = runs or Runs(), Events()
    request = a_request()
    load = request.workload.load.model_copy(update={"rate_per_second": 500})
    search = Search(precision=0.5, factor=2, budget_s=100)
    changes = {"search": search, "load": load, "thresholds": thresholds}
    workload = request.workload.model_copy(update=changes)
    request = request.model_copy(update={"workload": workload})

    def interrupted() -> str:
        return "cancelled" if cancelled_in in [run_id for run_id, _ in runs.carried_out] else ""

    settings: Any = ConductorSettings()
    Searching(request, settings, events, interrupted, so_far, runs=runs).execute()  # type: ignore[arg-type]
    return runs, events


def test_it_repeats_the_step_that_was_lost_and_no_other() -> None:
    steps = (Done(500, long=False), Done(1000, long=False))
    so_far = SoFar(steps, lost=(f"{RUN_ID}-step-03",), spent_s=40)
    runs, events = search_after(so_far)
    assert runs.carried_out == [
        (f"{RUN_ID}-step-04-warm", 1000),  # a new pipeline is warmed up at half the rate
        (f"{RUN_ID}-step-04", 2000),
        (f"{RUN_ID}-step-05-warm", 707),
        (f"{RUN_ID}-step-05", 1414),
        (f"{RUN_ID}-step-06-warm", 500),
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


def test_a_new_pipeline_is_warmed_up_after_a_guess_that_was_too_high() -> None:
    refused = Done(2000, long=False, refusals=("parse: median latency rises.",))
    runs, events = search_after(SoFar((refused,)))
    assert runs.carried_out[:2] == [(f"{RUN_ID}-step-02-warm", 500), (f"{RUN_ID}-step-02", 1000)]
    assert events.conclusions[-1][1]["ended_by"] == "precision"


@pytest.mark.parametrize("spent_s", [0, 100])  # before a step, before the verifying run
def test_a_search_cancelled_while_it_warms_up_begins_no_other_run(spent_s: float) -> None:
    so_far = SoFar((Done(500, long=False),), spent_s=spent_s)
    warm = f"{RUN_ID}-step-02-warm"
    runs, _events = search_after(so_far, cancelled_in=warm)
    assert [run_id for run_id, _rate in runs.carried_out] == [warm]


def test_each_step_says_whether_it_was_steady_after_which_warm_up() -> None:
    steps = (Done(500, long=False, number=1), Done(1000, long=False, number=2))
    so_far = SoFar(steps, lost=(f"{RUN_ID}-step-03",), spent_s=40)
    _runs, events = search_after(so_far)
    (first, *_), (_, result) = events.conclusions[0], events.conclusions[-1]
    assert first == "search_step"
    told = events.conclusions[0][1]
    assert (told["step"], told["steady"], told["warm_up_s"]) == (4, False, 23)
    assert told["moving"] == ["spark-realtime parse: p50 rose by 900 ms"]
    found = [(one["step"], one["rate_per_second"], one["steady"]) for one in result["steps"]]
    assert found == [
        (1, 500, None),
        (2, 1000, None),
        (4, 2000, False),
        (5, 1414, False),
        (6, 1000, True),
    ]
    assert [one["warm_up_s"] for one in result["steps"]] == [None, None, 23, 23, 23]
    assert [one["measured_s"] for one in result["steps"]] == [15, 15, 15, 15, 60]


THRESHOLDS = ("pipeline.sustainable_rate_per_second >= 900", "join.p99_ms <= 50")


def test_the_rate_found_is_judged_by_the_thresholds_beside_what_its_run_measured() -> None:
    steps = (Done(500, long=False), Done(1000, long=False))
    runs, _events = search_after(SoFar(steps, spent_s=100), THRESHOLDS)
    (*_steps, run) = runs.told
    other, row = run.detail["thresholds"]
    assert other == "join.p99_ms <= 50"
    assert (row["threshold"], row["pipeline"], row["passed"]) == (
        THRESHOLDS[0],
        "spark-realtime",
        True,
    )
    assert row["value"] == run.detail["search"]["rate_per_second"] == pytest.approx(970)


def test_a_search_without_a_rate_has_each_threshold_once() -> None:
    refused = Done(500, long=False, refusals=("parse: median latency rises.",))
    runs, _events = search_after(SoFar((refused,), spent_s=100), THRESHOLDS)
    other, row = runs.told[-1].detail["thresholds"]
    assert (other, row["value"], row["passed"]) == ("join.p99_ms <= 50", None, False)


def test_only_the_run_at_the_rate_found_kills_and_builds_up_a_backlog() -> None:
    request = a_request()
    changes = {"search": Search(), "kills": (Kill(target="driver"),), "pipelines_start_s": 5}
    workload = request.workload.model_copy(update=changes)
    request = request.model_copy(update={"workload": workload})
    step = bisection.step_request(request, Planned(500, long=False), 1, warm=False)
    for one in (step, bisection.warming_request(step)):
        assert (one.workload.kills, one.workload.pipelines_start_s) == ((), 0)
        assert RunRequest.model_validate_json(one.model_dump_json()) == one
    run = bisection.verifying_request(request, 900, warm=True)
    assert (run.workload.kills, run.workload.pipelines_start_s) == (workload.kills, 5)


def test_the_run_at_the_rate_found_can_be_sent_to_all_services() -> None:
    request = a_request()
    changes = {"search": Search(), "thresholds": THRESHOLDS}
    workload = request.workload.model_copy(update=changes)
    request = request.model_copy(update={"workload": workload})
    run = bisection.verifying_request(request, 900, warm=True)
    sent = RunRequest.model_validate_json(run.model_dump_json())
    assert sent.workload.thresholds == ("join.p99_ms <= 50",)


@pytest.mark.parametrize(
    ("generator_us", "why"),
    [
        (
            136.0,
            " The machine became slower: the generator used 36% more CPU time per record than"
            " in step 2.",
        ),
        (114.0, ""),
        (None, ""),
    ],
)
def test_a_run_at_the_rate_found_that_is_not_sustained_says_whether_the_machine_became_slower(
    generator_us: float | None, why: str
) -> None:
    steps = (
        Done(500, long=False, number=1, generator_us=130),
        Done(1000, long=True, number=2, generator_us=100),
        Done(2000, long=False, number=3, refusals=("slow.",), generator_us=90),
    )

    class SlowRuns(Runs):
        def observe(self, request: RunRequest) -> StepObservation:
            medians = dict.fromkeys(range(15), 20_000.0)
            return StepObservation((StageObserved("parse", medians),), generator_us=generator_us)

    runs, _events = search_after(SoFar(steps, spent_s=100), runs=SlowRuns())
    assert runs.told[-1].reasons == (
        "90% of the rate found was not sustained: parse: median latency 20000 ms, allowed below "
        f"10000.{why}",
    )
    assert of_the_machine(*runs.told[-1].reasons)


def test_the_time_that_was_spent_before_counts() -> None:
    so_far = SoFar((Done(500, long=False), Done(1000, long=False)), spent_s=100)
    runs, _events = search_after(so_far)
    assert runs.carried_out == [(f"{RUN_ID}-step-03-warm", 436.5), (RUN_ID, 873)]


def test_a_step_whose_load_never_began_is_no_evidence_about_its_rate() -> None:
    crashing = Runs(crashes=2)  # the second step, and the run before it
    runs, events = search_after(SoFar((Done(500, long=False),)), runs=crashing)
    assert runs.carried_out == [
        (f"{RUN_ID}-step-03-warm", 500),
        (f"{RUN_ID}-step-03", 1000),  # again
        (f"{RUN_ID}-step-04", 2000),
        (f"{RUN_ID}-step-05-warm", 707),
        (f"{RUN_ID}-step-05", 1414),
        (f"{RUN_ID}-step-06-warm", 500),
        (f"{RUN_ID}-step-06", 1000),
        (RUN_ID, 873),
    ]
    _kind, result = events.conclusions[-1]
    assert result["lost_steps"] == [f"{RUN_ID}-step-02"]
    assert [step["rate_per_second"] for step in result["steps"]] == [500, 1000, 2000, 1414, 1000]


def test_a_search_whose_steps_keep_crashing_is_given_up_with_their_reason() -> None:
    runs, events = search_after(SoFar((Done(500, long=False),)), runs=Runs(crashes=100))
    assert runs.carried_out == []
    ((kind, result),) = events.conclusions
    assert (kind, len(result["lost_steps"])) == ("sustainable_throughput", MOST_LOST + 1)
    assert events.reasons == [("The driver crashed.",)]


def test_a_step_that_only_the_processor_refused_was_limited_in_the_pipeline() -> None:
    def limited_by(found: StepVerdict) -> str:
        return searching._limited_by(found, Run(a_request(), []))  # type: ignore[arg-type]

    assert limited_by(StepVerdict(("Mean CPU 80%.",), by_cpu_alone=True)) == "heap"
    assert limited_by(StepVerdict(("parse: median latency rises.",))) == "generator"


def test_a_step_that_a_dead_service_ended_is_repeated_once() -> None:
    class DyingRuns(Runs):
        """The generator dies once, at a thousand records a second."""

        deaths = 0

        def observe(self, request: RunRequest) -> StepObservation:
            if request.workload.load.rate_per_second == 1000 and not self.deaths:
                self.deaths = 1
                reason = "The generator was terminated by signal 9 during the run."
                return StepObservation((), trouble=(reason,), broken_by="generator")
            return super().observe(request)

    _runs, events = search_after(SoFar((Done(500, long=False),)), runs=DyingRuns())
    result = events.conclusions[-1][1]
    rates = [(step["rate_per_second"], step["limited_by"]) for step in result["steps"][:3]]
    assert rates == [(500, ""), (1000, "generator"), (1000, "")]
    assert result["rate_per_second"] == pytest.approx(970)


def half_closed() -> DomainSpec:
    """Traffic, whose windows are counted, with one more that event time closes."""
    spec = load_domain("traffic").spec
    closed = spec.stage("tumbling").model_copy(
        update={"name": "closed", "complete": None, "once_per": ()}
    )
    stages = [stage.model_dump() for stage in (*spec.stages, closed)]
    return DomainSpec.model_validate(spec.model_dump() | {"stages": stages})


@pytest.mark.parametrize(
    ("domain", "stages", "warm"),
    [
        ("traffic", ("parse", "join", "tumbling", "sliding"), True),
        ("gem_packs", ("ingest", "parse", "enriched"), True),
        ("gem_packs", ("parse", "revenue"), True),
        ("gem_packs", ("dear",), True),  # a filter of a join
        ("flights", ("countries", "cells"), True),
        ("half_closed", ("parse", "tumbling"), True),
        ("half_closed", ("closed",), False),
    ],
)
def test_pipelines_stay_warm_unless_event_time_closes_windows_beside_others(
    domain: str, stages: tuple[str, ...], warm: bool
) -> None:
    spec = half_closed() if domain == "half_closed" else load_domain(domain).spec
    changes = {"domain": spec, "stages": stages}
    assert bisection.can_stay_warm(a_request().model_copy(update=changes)) is warm


@pytest.mark.parametrize(
    ("stages", "second_ms", "windows", "warm"),
    [
        (("parse", "join"), 1000, {}, True),
        (("parse", "join"), 2000, {}, True),
        (("parse", "join"), 50, {}, False),
        (("tumbling",), 50, {}, False),
        (("ingest", "parse"), 50, {}, True),
        (("tumbling",), 1000, {"tumbling_s": 60, "sliding_s": 300}, False),
        (("ingest", "parse"), 1000, {"tumbling_s": 60, "sliding_s": 300}, True),
        (("revenue",), 200, {"revenue_s": 60, "revenue_slide_s": 60}, False),
        (("revenue",), 1000, {"revenue_s": 60, "revenue_slide_s": 60}, True),
    ],
)
def test_pipelines_do_not_stay_warm_if_the_next_traffic_is_before_their_watermark(
    stages: tuple[str, ...], second_ms: int, windows: dict[str, int], warm: bool
) -> None:
    request = a_request()
    content = request.workload.content.model_copy(update={"second_ms": second_ms})
    domain = "gem_packs" if stages == ("revenue",) else "traffic"
    changes = {
        "workload": request.workload.model_copy(update={"content": content}),
        "domain": load_domain(domain).spec.resolved(windows),
        "stages": stages,
    }
    assert bisection.can_stay_warm(request.model_copy(update=changes)) is warm


def own_search(data: Path, workload: Path, runs: Runs) -> Events:
    """The events of a search with the search of a workload's file, from 500 records/s."""
    loaded = load_workload(str(workload))
    keep_definitions(data, [loaded], [])
    return searched(loaded.search, data, runs)


def searched(search: Search | None, data: Path, runs: Runs) -> Events:
    events, request = Events(), a_request()
    assert search is not None
    search = search.model_copy(update={"precision": 0.5, "budget_s": 1_000})
    load = request.workload.load.model_copy(update={"rate_per_second": 500})
    workload = request.workload.model_copy(update={"search": search, "load": load})
    request = request.model_copy(update={"workload": workload})
    settings: Any = ConductorSettings(data=data)
    Searching(request, settings, events, lambda: "", runs=runs).execute()  # type: ignore[arg-type]
    return events


class Queueing(Runs):
    """Runs whose queue grows by what exceeds CAPACITY_PER_SECOND, at steady latencies."""

    def observe(self, request: RunRequest) -> StepObservation:
        rate = request.workload.load.rate_per_second
        grows = max(0.0, rate - CAPACITY_PER_SECOND)
        seconds = tuple(Second(at, round(rate), grows * at) for at in range(15))
        medians = dict.fromkeys(range(15), 100.0)
        return StepObservation((StageObserved("parse", medians, seconds),))


def written(folder: Path, policy: str) -> Path:
    """A copy of the example with another policy."""
    (folder / "growing_queue.py").write_text(policy)
    return Path(shutil.copy(EXAMPLE, folder))


def test_a_search_is_judged_by_the_policy_of_the_example(tmp_path: Path) -> None:
    runs = Queueing()
    events = own_search(tmp_path, EXAMPLE, runs)
    kind, result = events.conclusions[-1]
    assert kind == "sustainable_throughput"
    assert result["policy"] == "growing_queue.py"
    tried = [(step["rate_per_second"], step["sustained"]) for step in result["steps"]]
    assert tried == [(500, True), (1000, True), (2000, False), (1414, False), (1000, True)]
    assert result["limit"] == ["parse: the queue grew by 4140 of 21210 records."]
    assert result["rate_per_second"] == 1000
    assert runs.carried_out[-1] == (RUN_ID, 900)
    assert runs.told[-1].valid


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (
            "def judge(step):\n    return 1 / 0\n",
            "The policy growing_queue.py raised ZeroDivisionError: division by zero in line 2.",
        ),
        (
            "def judge(step):\n    return True\n",
            "The policy growing_queue.py answered with bool, not with None or a sentence.",
        ),
        (
            "import os\ndef judge(step):\n    os._exit(0)\n",
            "The policy growing_queue.py ended its process without an answer.",
        ),
        (
            "import sys\ndef judge(step):\n    print('{}')\n    return ' ' * 3\n",
            "The policy growing_queue.py answered with 0 characters, not with 1 to 500.",
        ),
    ],
)
def test_a_policy_without_an_answer_ends_the_search(
    tmp_path: Path, policy: str, reason: str
) -> None:
    runs = Queueing()
    own_search(tmp_path, written(tmp_path, policy), runs)
    assert [run_id for run_id, _ in runs.carried_out] == [f"{RUN_ID}-step-01"]
    assert runs.told[-1].reasons == (reason,)


def test_a_policy_that_does_not_return_ends_its_process_and_not_the_conductor(
    tmp_path: Path,
) -> None:
    search = load_workload(str(written(tmp_path, ENDLESS))).search
    assert search is not None
    assert search.policy_file is not None
    keep_definitions(tmp_path, [load_workload(str(tmp_path / EXAMPLE.name))], [])
    policy = own_policy(search.policy_file, tmp_path, within_s=3)
    with pytest.raises(
        PolicyError, match=r"^The policy growing_queue.py did not answer within 3 s"
    ):
        policy(StepObservation(()))


def test_a_policy_that_no_file_of_this_machine_names_is_not_run(tmp_path: Path) -> None:
    search, runs = load_workload(str(EXAMPLE)).search, Queueing()
    searched(search, tmp_path, runs)
    assert runs.carried_out == []
    (reason,) = runs.told[-1].reasons
    assert reason == (
        "search.policy_file: no workload on the conductor's machine names "
        f"{EXAMPLE.with_name('growing_queue.py')}."
    )


def test_a_policy_that_has_changed_since_is_not_run(tmp_path: Path) -> None:
    loaded, runs = load_workload(str(written(tmp_path, ENDLESS))), Queueing()
    keep_definitions(tmp_path, [loaded], [])
    (tmp_path / "growing_queue.py").write_text("def judge(step):\n    return None\n")
    searched(loaded.search, tmp_path, runs)
    assert runs.carried_out == []
    assert "growing_queue.py has changed since" in runs.told[-1].reasons[0]


def test_the_policy_gets_what_was_observed_and_none_of_the_conductors_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGAUGE_KAFKA_PASSWORD", "secret")
    code = "import os\ndef judge(step):\n    return f'{step} {sorted(os.environ)}'\n"
    loaded = load_workload(str(written(tmp_path, code)))
    assert loaded.search is not None
    assert loaded.search.policy_file is not None
    keep_definitions(tmp_path, [loaded], [])
    stage = StageObserved("parse", {0: 1.5}, (Second(0, 10, None),), 1.0, 2)
    step = StepObservation((stage,), 10, 1, 0.5, ("late",))
    answer = own_policy(loaded.search.policy_file, tmp_path)(step)
    assert answer is not None
    assert answer.startswith(repr(step))
    assert "TIDEGAUGE" not in answer


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ("def other(step):\n    pass\n", "has no function judge(step)"),
        ("def judge(step:\n", "is not Python"),
    ],
)
def test_a_file_without_a_policy_is_refused_when_it_is_read(
    tmp_path: Path, policy: str, sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=re.escape(sentence)):
        load_workload(str(written(tmp_path, policy)))


def test_a_policy_of_ones_own_needs_its_file() -> None:
    with pytest.raises(ValidationError, match="must be given together"):
        Search(policy="own")


class Unmeasured(Runs):
    """Runs whose pipeline's processor time is not known."""

    def observed(self, request: RunRequest, _interrupted: Any, *, warm: bool, keep: bool) -> Any:
        step = super().observed(request, _interrupted, warm=warm, keep=keep)
        return replace(step, inapplicable="The limit cannot be applied.")


def test_a_search_whose_limit_cannot_be_applied_ends_and_says_so() -> None:
    runs, events = search_after(SoFar(), runs=Unmeasured())
    assert [run_id for run_id, _ in runs.carried_out] == [f"{RUN_ID}-step-01"]
    assert runs.told[-1].reasons == ("The limit cannot be applied.",)
    assert [kind for kind, _detail in events.conclusions] == ["sustainable_throughput"]
