"""When a step counts as sustained: literal observations, one policy at a time."""

from dataclasses import replace

import pytest

from analysis.steadiness import slope
from schemas.observation import Second, StageObserved, StepObservation
from schemas.search import QueueThresholds, Search, SteadyLatency
from services.conductor.search.policies import (
    StepVerdict,
    hopeless,
    inapplicable,
    judged,
    resolution,
)

pytestmark = pytest.mark.unit

STEADY = dict.fromkeys(range(10), 500.0)
# A tenth of this is 100 records: q^a 5 % = 50, q^b 15 % = 150, q^n 30 % = 300 of 1000 records.
PUSHED = 100


def observed(medians_ms: dict[int, float] | None = None, **fields: object) -> StepObservation:
    stage = {"drained_s": 1.0, "missing": 0, "queues": (), **fields}
    whole = {name: stage.pop(name) for name in ("failed_sends", "cpu_share") if name in stage}
    queues = stage.pop("queues")
    seconds = tuple(Second(at, PUSHED, queue) for at, queue in enumerate(queues))
    medians = STEADY if medians_ms is None else medians_ms
    return StepObservation((StageObserved("parse", medians, seconds, **stage),), 1000, **whole)


def refusals(observation: StepObservation, search: Search) -> tuple[str, ...]:
    return judged(observation, search, final=False).refusals


def latency(observation: StepObservation) -> tuple[str, ...]:
    return refusals(observation, Search())


def queue(policy: str, *queues: float | None) -> tuple[str, ...]:
    return refusals(observed(queues=queues), Search(policy=policy))


def test_a_steady_median_is_sustained() -> None:
    assert latency(observed()) == ()


def test_a_median_that_rises_by_31_ms_a_second_is_not() -> None:
    rising = {second: 500.0 + 31 * second for second in range(10)}
    assert latency(observed(rising)) == ("parse: median latency rises by 31 ms a second.",)
    slower = {second: 500.0 + 29 * second for second in range(10)}
    assert latency(observed(slower)) == ()


def test_a_rise_in_the_later_half_alone_is_seen() -> None:
    bent = {second: 500.0 + 40 * max(0, second - 20) for second in range(40)}
    assert slope(bent).value < 30
    assert latency(observed(bent)) == ("parse: median latency rises by 40 ms a second.",)


def noisy(rise_ms_per_s: float, seconds: int, amplitude_ms: float) -> dict[int, float]:
    """Alternately above and below a line."""
    offsets = (amplitude_ms, -amplitude_ms, amplitude_ms / 2, -amplitude_ms / 2, 0.0)
    return {at: 800 + rise_ms_per_s * at + offsets[at % 5] for at in range(seconds)}


def test_noise_does_not_decide() -> None:
    """15 s of medians that vary by 300 ms hide a rise of 50 ms a second, which a longer step
    reveals. At 5 ms a second no level has risen, whatever slope the noise allows."""
    assert judged(observed(noisy(5, 15, 300)), Search(), final=False) == StepVerdict()
    short = judged(observed(noisy(50, 15, 300)), Search(), final=False)
    assert short == StepVerdict((), undecided=True)
    long = judged(observed(noisy(5, 60, 300)), Search(), final=True)
    assert long == StepVerdict()
    rising = judged(observed(noisy(50, 60, 300)), Search(), final=True)
    assert rising.refusals == ("parse: median latency rises by 50 ms a second.",)


def test_the_medians_of_a_few_batches_show_only_a_clear_rise() -> None:
    """Batches of 3 s, in a step of 10 s: 49 ms a second are noise between -148 and 215."""
    batches = {0: 1_900.0, 3: 2_545.0, 6: 2_100.0, 9: 2_480.0}
    assert judged(observed(batches), Search(), final=False) == StepVerdict((), undecided=True)
    assert judged(observed(batches), Search(), final=True) == StepVerdict()
    behind = {0: 2_000.0, 3: 3_500.0, 6: 5_100.0, 9: 6_700.0}
    for final in (False, True):
        assert judged(observed(behind), Search(), final=final).refusals == (
            "parse: median latency rises by 528 ms a second.",
        )


def test_a_slope_without_a_level_is_no_rise() -> None:
    """40 ms a second for ten seconds at 4 s: the last third is 7 % above the first."""
    high = {at: 4_000.0 + 40 * at for at in range(10)}
    assert judged(observed(high), Search(), final=True) == StepVerdict()
    assert judged(observed(high), Search(), final=False) == StepVerdict((), undecided=True)


def test_a_step_that_is_refused_anyway_is_not_repeated() -> None:
    found = judged(observed(noisy(5, 15, 300), missing=1), Search(), final=False)
    assert found == StepVerdict(("parse: 1 outputs are missing.",), undecided=False)


@pytest.mark.parametrize(
    ("rise_ms_per_s", "seconds", "is_so"),
    [(400, 20, True), (100, 20, False), (400, 10, False), (0, 20, False)],
)
def test_what_is_hopeless_is_known_early(rise_ms_per_s: float, seconds: int, is_so: bool) -> None:
    medians = {at: 1_500.0 + rise_ms_per_s * at for at in range(seconds)}
    assert hopeless(medians, max_rise=0.03) is is_so


@pytest.mark.parametrize(("seconds", "is_so"), [(20, False), (37, True)])
def test_a_cold_pipeline_has_until_its_latency_is_above_what_is_allowed(
    seconds: int, is_so: bool
) -> None:
    medians = {at: 1_500.0 + 400 * at for at in range(seconds)}
    assert hopeless(medians, max_rise=0.03, above_ms=10_000) is is_so


@pytest.mark.parametrize(("seconds", "is_so"), [(21, True), (17, True), (16, False)])
def test_what_is_hopeless_is_known_also_of_windows_that_close_every_four_seconds(
    seconds: int, is_so: bool
) -> None:
    medians = {at: 1_500.0 + 400 * at for at in range(0, seconds, 4)}
    assert hopeless(medians, max_rise=0.03) is is_so
    assert not hopeless(medians | {seconds: 900.0}, max_rise=0.03)


def test_one_pause_is_no_rise() -> None:
    paused = STEADY | {9: 4000.0}
    assert latency(observed(paused)) == ()


def test_a_median_of_ten_seconds_is_too_much_even_when_it_is_steady() -> None:
    high = dict.fromkeys(range(10), 10000.0)
    assert latency(observed(high)) == ("parse: median latency 10000 ms, allowed below 10000.",)


def test_being_drained_ten_seconds_after_the_end_is_too_late() -> None:
    assert latency(observed(drained_s=9.0)) == ()
    assert latency(observed(drained_s=10.0)) == (
        "parse: drained 10 s after the end, allowed below 10 s.",
    )


def test_eighty_percent_of_the_processors_is_too_much() -> None:
    assert latency(observed(cpu_share=0.79)) == ()
    assert latency(observed(cpu_share=0.8)) == (
        "Mean CPU 80% of the cores that the pipeline may use, allowed below 80%.",
    )
    assert judged(observed(cpu_share=0.8), Search(), final=True).by_cpu_alone
    assert not judged(observed(cpu_share=0.8, missing=1), Search(), final=True).by_cpu_alone
    unbounded = Search(steady_latency=SteadyLatency(max_cpu_share=1))
    assert refusals(observed(cpu_share=1.0), unbounded) == ()


def test_outputs_in_two_seconds_are_no_evidence() -> None:
    assert latency(observed({0: 1.0, 1: 1.0})) == (
        "parse: outputs in only 2 seconds, too few to judge latency.",
    )


def test_a_limit_of_the_cores_cannot_be_applied_to_a_pipeline_that_was_not_measured() -> None:
    unknown = observed(cpu_share=None)
    assert "search.steady_latency.max_cpu_share) cannot be applied" in inapplicable(
        Search(), unknown
    )
    assert inapplicable(Search(), observed(cpu_share=0.1)) == ""
    without = Search(steady_latency=SteadyLatency(max_cpu_share=1))
    assert inapplicable(without, unknown) == ""
    assert inapplicable(Search(policy="queue-by-time"), unknown) == ""


@pytest.mark.parametrize(
    "policy", ["steady-latency", "queue-by-time", "queue-by-count", "queue-combined"]
)
def test_under_every_policy_failed_sends_and_missing_outputs_fail(policy: str) -> None:
    step = observed(queues=[0.0] * 10, failed_sends=1, missing=2)
    assert refusals(step, Search(policy=policy)) == (
        "1 of 1000 sends failed.",
        "parse: 2 outputs are missing.",
    )


def test_trouble_and_silence_are_never_sustained() -> None:
    trouble = StepObservation((), trouble=("The generator was late.",))
    assert refusals(trouble, Search()) == ("The generator was late.",)
    assert refusals(StepObservation(()), Search()) == ("Nothing was observed.",)


@pytest.mark.parametrize("policy", ["queue-by-time", "queue-by-count", "queue-combined"])
def test_a_queue_up_to_qa_is_sustained_and_one_above_qb_or_qn_is_not(policy: str) -> None:
    assert queue(policy, *[50.0] * 10) == ()
    assert queue(policy, *[0.0] * 9, 151.0) == ("parse: queue of 15% of the input, above 15%.",)
    assert queue(policy, *[0.0] * 9, 301.0) == (
        "parse: the queue would be full, 301 of 1000 records.",
    )
    assert queue(policy, *[0.0] * 9, None) == ("parse: its queue length is unknown.",)


def test_by_time_a_longer_queue_is_tolerated_for_three_seconds_on_end() -> None:
    assert queue("queue-by-time", 60, 60, 60, 0, 60, 60, 60, 0, 0, 0) == ()
    assert queue("queue-by-time", 60, 60, 60, 60, 0, 0, 0, 0, 0, 0) == (
        "parse: queue above 5% for 4 s, tolerated 3 s.",
    )


def test_by_count_a_longer_queue_is_tolerated_for_so_many_pushes_on_end() -> None:
    search = Search(policy="queue-by-count", queue=QueueThresholds(tolerated=0.2))
    twice = observed(queues=[60.0, 60.0, 0.0, 60.0, 60.0, *[0.0] * 5])
    assert refusals(twice, search) == ()
    on_end = observed(queues=[60.0, 60.0, 60.0, *[0.0] * 7])
    assert refusals(on_end, search) == (
        "parse: 300 records pushed to a queue above 5%, tolerated 200.",
    )


def test_combined_the_queue_is_looked_at_again_after_half_of_what_is_between() -> None:
    # After the next second there are (150 - 50) / 2 = 50 more records.
    assert queue("queue-combined", 60, 0, 60, 0, 60, 0, 0, 0, 0, 0) == ()
    assert queue("queue-combined", 0, 60, 60, 0, 0, 0, 0, 0, 0, 0) == (
        "parse: queue above 5% again after 5% more of the input.",
    )


def test_the_resolution_is_the_overload_that_a_step_cannot_see() -> None:
    # A rise of 20 ms a second is an overload of 0.02 / 0.98.
    steady = Search(steady_latency=SteadyLatency(max_rise=0.02))
    assert resolution(steady, 20) == pytest.approx(0.020408, abs=1e-6)
    # q^a = 5 % is reached after 19 of 20 s at the earliest, if 5 % are tolerated: 0.05 / 0.95 =
    # 0.0526.
    assert resolution(Search(policy="queue-by-count"), 20) == pytest.approx(0.0526 / 0.9474, 1e-3)
    # Tolerated for 3 of 20 s: 0.05 / 0.85 = 0.0588.
    assert resolution(Search(policy="queue-by-time"), 20) == pytest.approx(0.0588 / 0.9412, 1e-3)
    # Tolerated indefinitely, but never above q^b = 15 %.
    assert resolution(Search(policy="queue-by-time"), 3) == pytest.approx(0.15 / 0.85)


@pytest.mark.parametrize(
    ("observation", "alone"),
    [
        (observed(), False),
        (replace(observed(), trouble=("The generator was late.",)), True),
        (observed(failed_sends=3), True),
        (replace(observed(missing=3), trouble=("The generator was late.",)), False),
        (replace(observed(cpu_share=0.9), trouble=("The generator was late.",)), False),
        (StepObservation((), trouble=("The driver crashed.",)), False),
        (StepObservation((), trouble=("generator was restarted.",), broken_by="generator"), True),
    ],
)
def test_whether_the_input_alone_was_the_reason(observation: StepObservation, alone: bool) -> None:
    assert judged(observation, Search(), final=False).by_input_alone is alone
