"""Messages between services."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.load import Constant, RampUp
from schemas.protocol import (
    OTHER_PROCESSES,
    PHASES,
    Judgement,
    PhasePlan,
    Phases,
    Pipeline,
    RunPlan,
    Workload,
    largest,
    parse_stages,
)
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

ALL = ("ingest", "parse", "join", "tumbling", "sliding")


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("0-4", ALL),
        ("0-0", ("ingest",)),
        ("2", ("join",)),
        ("0,3", ("ingest", "tumbling")),
        ("3,0", ("ingest", "tumbling")),
        ("sliding,parse", ("parse", "sliding")),
        ("2-3,join", ("join", "tumbling")),
        (" 1 , 4 ", ("parse", "sliding")),
    ],
)
def test_stages_are_numbers_ranges_or_names_and_come_in_order(text, stages):
    assert parse_stages(text, ALL) == stages


@pytest.mark.parametrize("text", ["", "5", "4-0", "0-5", "-1", "joins", "1,", "1;2", "0-2-4", "٣"])
def test_anything_else_is_refused_with_what_is_allowed(text):
    with pytest.raises(
        ValueError, match=r"stages must be like 0-4, 0 or names \(ingest, .*\), not "
    ):
        parse_stages(text, ALL)


# Load from 100 s on: warm-up 10 s, measure 30 s, cool-down 5 s.
PLAN = PhasePlan(load_start_ms=100_000, phases=Phases(warm_up_s=10, measure_s=30, cool_down_s=5))


def test_the_phases_follow_each_other():
    assert (PLAN.measure_start_ms, PLAN.measure_end_ms, PLAN.load_end_ms) == (
        110_000,
        140_000,
        145_000,
    )
    assert PLAN.phases.total_s == 45


@pytest.mark.parametrize(
    ("scheduled_us", "phase"),
    [
        (0, "warm_up"),
        (109_999_999, "warm_up"),
        (110_000_000, "measure"),
        (139_999_999, "measure"),
        (140_000_000, "cool_down"),
        (999_000_000, "cool_down"),
    ],
)
def test_a_phase_begins_with_its_first_microsecond(scheduled_us, phase):
    assert PLAN.phase_of(scheduled_us) == phase
    assert phase in PHASES


def test_without_warm_up_the_first_record_is_measured():
    plan = PhasePlan(load_start_ms=5_000, phases=Phases(warm_up_s=0, measure_s=1, cool_down_s=3))
    assert plan.phase_of(5_000_000) == "measure"


def test_a_load_starts_at_a_whole_second():
    with pytest.raises(ValidationError, match="multiple of 1000"):
        PhasePlan(load_start_ms=1_500, phases=Phases())


@pytest.mark.parametrize("phases", [{"measure_s": 0}, {"cool_down_s": 2}, {"warm_up_s": -1}])
def test_phases_have_bounds(phases):
    with pytest.raises(ValidationError):
        Phases(**phases)


def test_what_is_not_late_is_not_missing():
    with pytest.raises(ValidationError, match="give_up_ms must not be less than deadline_ms"):
        Judgement(deadline_ms=2, give_up_ms=1)
    assert Judgement(deadline_ms=2, give_up_ms=2).give_up_ms == 2


@pytest.mark.parametrize("name", ["", "Latency", "a b", "-a", "a/b", "a.b", "x" * 64])
def test_names_are_small_letters_digits_and_dashes(name):
    with pytest.raises(ValidationError):
        Pipeline(
            name=name, summary="-", engine="spark", mode="real-time", implementation="customised"
        )


def test_an_unknown_field_is_refused():
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Phases(warmup_s=1)


def test_a_plan_is_the_same_after_its_way_over_the_bus():
    plan = RunPlan(request=a_request(), start_offsets={"traffic.flow": (3, 4)})
    assert RunPlan.model_validate_json(plan.model_dump_json()) == plan


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({"phases": {"warm_up_s": "auto"}}, 180),
        ({"phases": {"warm_up_s": 30, "until_steady": True}}, 60),
        ({"phases": {"warm_up_s": 2}}, 2),
        ({"phases": {"warm_up_s": 90}}, 90),
        ({"phases": {"warm_up_s": 2, "optimised": True}}, 60),
        ({"phases": {"warm_up_s": 2}, "sustainable_share": 0.9}, 60),
        ({"phases": {"warm_up_s": "auto"}, "search": {}}, 180),
    ],
)
def test_engines_compile_for_a_long_warm_up_if_code_must_be_optimised(changes, seconds):
    given = {"name": "x", "summary": "x", "load": Constant(rate_per_second=1)} | changes
    assert Workload.model_validate(given).least_warm_up_s == seconds


def test_a_warm_up_until_steady_has_a_cap_and_an_even_load():
    auto = Phases.model_validate({"warm_up_s": "auto"})
    assert (auto.warm_up_s, auto.until_steady) == (180, True)
    assert Phases.model_validate(auto.model_dump()) == auto
    with pytest.raises(ValidationError, match="at least 10"):
        Phases(warm_up_s=5, until_steady=True)
    even = {"name": "x", "summary": "x", "load": Constant(rate_per_second=1), "phases": auto}
    assert Workload.model_validate(even).phases.until_steady
    ramp = RampUp(rate_per_second=9, for_s=9)
    with pytest.raises(ValidationError, match="constant, sine, fluctuating, periodic_burst"):
        Workload.model_validate(even | {"load": ramp})
    with pytest.raises(ValidationError, match="a warm_up_s in seconds"):
        Workload.model_validate(even | {"pipelines_start_s": 20})


@given(
    st.dictionaries(st.sampled_from([*"abcdef", OTHER_PROCESSES]), st.integers(0, 9)),
    st.integers(1, 4),
)
def test_the_processes_that_used_most_have_a_name(amounts, most):
    found = largest(amounts, most)
    named = [name for name in found if name != OTHER_PROCESSES]
    left = [name for name in amounts if name not in found]
    assert len(named) == min(most, len(set(amounts) - {OTHER_PROCESSES}))
    assert all(found[name] >= amounts[other] for name in named for other in left)
    assert sum(found.values()) == sum(amounts.values())
    assert list(found)[:-1] == named[: len(found) - 1]
