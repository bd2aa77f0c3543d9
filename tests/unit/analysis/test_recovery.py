"""Duration of disturbances, from literal seconds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import recovery as module
from analysis.recovery import CpuTime, Disturbance, planned
from schemas.load import Constant, Fluctuating, PeriodicBurst
from schemas.report import Recovery

pytestmark = pytest.mark.unit


def recovery(
    disturbances: Sequence[Disturbance],
    medians_ms: Mapping[int, float],
    outputs: Mapping[int, int],
    latencies: Mapping[int, Mapping[int, int]] = module.NO_LATENCIES,
    **more: Any,
) -> list[dict[str, Any]]:
    found = module.recovery(disturbances, medians_ms, outputs, latencies, **more)
    return [one.as_json() for one in found]


def sentence(stage: str, recovered: dict[str, Any]) -> str:
    return module.sentence(stage, Recovery(**recovered))


def test_bursts_are_those_that_end_within_the_load() -> None:
    load = PeriodicBurst(rate_per_second=400, burst_records=10, burst_ms=175, period_s=10)
    assert planned(load, 1000, 1035) == [
        Disturbance("burst", "burst 1", 1010, 1020),
        Disturbance("burst", "burst 2", 1020, 1030),
    ]


def test_a_fluctuating_load_rises_every_second_period() -> None:
    load = Fluctuating(rate_per_second=1200, period_s=20)
    assert planned(load, 1000, 1105) == [
        Disturbance("rise", "rise 1", 1040, 1060),
        Disturbance("rise", "rise 2", 1080, 1100),
    ]


def test_other_loads_have_none() -> None:
    assert planned(Constant(rate_per_second=1), 0, 100) == []


def test_latency_is_high_until_the_last_second_above_one_and_a_half_times_normal() -> None:
    bursts = [Disturbance("burst", "burst 1", 10, 19), Disturbance("burst", "burst 2", 19, 28)]
    # The last third of each period is normal: 100 ms, so above 150 ms is high.
    medians = dict.fromkeys(range(10, 28), 100.0) | {10: 900.0, 11: 400.0, 12: 140.0, 19: 160.0}
    first, second = recovery(bursts, medians, {})
    assert first == {
        "event": "burst 1",
        "normal_ms": 100.0,
        "highest_median_ms": 900.0,
        "high_for_s": 2,
        "peak_per_second": 0,
        "p99_ms": None,
    }
    assert (second["highest_median_ms"], second["high_for_s"]) == (160.0, 1)
    assert (
        sentence("parse", first) == "parse, burst 1: median up to 900 ms, normal again after 2 s."
    )


@given(
    st.lists(st.lists(st.integers(1, 900), max_size=30), min_size=10, max_size=10),
    st.integers(0, 9),
)
def test_after_a_burst_the_p99_is_of_all_outputs_until_latency_is_normal(
    seconds: list[list[int]], normal_from: int
) -> None:
    burst = Disturbance("burst", "burst 1", 10, 20)
    medians = dict.fromkeys(range(20), 100.0) | {10 + s: 900.0 for s in range(normal_from)}
    bound = recovery([burst], medians, {})[0]["high_for_s"]
    latencies = {10 + s: Counter(values) for s, values in enumerate(seconds)}
    outputs = {10 + s: len(values) for s, values in enumerate(seconds)}
    # Outputs before and after the burst's period are none of its own.
    others = {9: Counter({5_000: 99}), 20: Counter({5_000: 99})}
    (found,) = recovery([burst], medians, outputs | {9: 99, 20: 99}, latencies | others)
    until = 10 if bound is None else max(1, bound)
    after = sorted(value for values in seconds[:until] for value in values)
    expected = after[-(-99 * len(after) // 100) - 1] if after else None
    assert found["p99_ms"] == expected
    assert found["peak_per_second"] == max(len(values) for values in seconds)


def test_a_burst_is_told_with_its_peak_and_its_tail() -> None:
    found = {"event": "burst 1", "normal_ms": 100.0, "highest_median_ms": 900.0, "high_for_s": 2}
    assert sentence("parse", found | {"peak_per_second": 1_500, "p99_ms": 950}) == (
        "parse, burst 1: median up to 900 ms, p99 950 ms, peak 1500 outputs/s, normal again after"
        " 2 s."
    )


def test_a_backlog_that_grows_from_burst_to_burst_is_never_normal_again() -> None:
    bursts = [Disturbance("burst", f"burst {n}", 10 * n, 10 * n + 10) for n in (1, 2, 3)]
    medians = {s: 100.0 if s < 10 else 2_000.0 * (s // 10) for s in range(40)}
    found = recovery(bursts, medians, {})
    assert [(one["normal_ms"], one["high_for_s"]) for one in found] == [(100.0, None)] * 3


@pytest.mark.parametrize(("first_ms", "last_ms"), [(40_000, 45_900), (30_000, 18_000)])
def test_a_backlog_that_lasts_to_the_end_is_not_caught_up(first_ms: int, last_ms: int) -> None:
    start = Disturbance("start", "start of the pipelines", 100, 160)
    medians = {s: first_ms + (last_ms - first_ms) * (s - 100) / 59 for s in range(100, 160)}
    (found,) = recovery([start], medians, dict.fromkeys(medians, 500))
    assert (found["normal_ms"], found["high_for_s"]) == (None, None)
    assert "not caught up in this run" in sentence("parse", found)


def test_a_pipeline_without_a_backlog_has_caught_up_at_once() -> None:
    start = Disturbance("start", "start of the pipelines", 100, 160)
    medians = {s: 90.0 - (s - 100) for s in range(100, 160)}
    (found,) = recovery([start], medians, dict.fromkeys(medians, 500))
    assert found["high_for_s"] is not None


def test_a_kill_is_examined_until_the_next_one() -> None:
    kills = [Disturbance("kill", "1", 20, 60), Disturbance("kill", "2", 60, 120)]
    medians = dict.fromkeys(range(100), 500.0) | {24: 4_000.0, 75: 9_000.0}
    outputs = {s: 100 for s in range(100) if not 20 <= s < 24 and not 60 <= s < 75}
    first, second = recovery(kills, medians, outputs)
    assert (first["silent_s"], first["highest_median_ms"], first["high_for_s"]) == (4, 4_000.0, 5)
    assert (second["silent_s"], second["highest_median_ms"]) == (15, 9_000.0)
    never = {s: n for s, n in outputs.items() if not 20 <= s < 60}
    assert recovery(kills, medians, never)[0]["silent_s"] == 40


KILLS = [
    Disturbance("kill", "1", 20, 50, since_s=10),
    Disturbance("kill", "2", 50, 80, since_s=10),
    Disturbance("kill", "3", 80, 120, since_s=10),
]
# 100 outputs a second; silent from 20 to 24, at 52, and from 81 until the end of 90.
SILENT = {*range(21, 25), 52, *range(81, 91)}
OUTPUTS = {second: 100 for second in range(5, 110) if second not in SILENT}
# Normal is 10 ms; the backlog of the first kill lasts for seconds 25 and 26, of the third for 91.
MEDIANS = dict.fromkeys(OUTPUTS, 10.0) | {25: 4_000.0, 26: 900.0, 91: 9_000.0}


def test_each_of_three_kills_has_its_outage_to_the_millisecond() -> None:
    found = recovery(KILLS, MEDIANS, OUTPUTS, gaps_ms=[4_200, 1_003, 10_750])
    assert [one["outage_s"] for one in found] == [4.2, 1.003, 10.75]
    assert [one["silent_s"] for one in found] == [4, 1, 10]
    assert [one["high_for_s"] for one in found] == [7, 0, 12]


def test_an_outage_that_lasts_until_the_next_kill_has_not_ended() -> None:
    # The last outputs of the stopped program come two seconds after the first kill.
    outputs = {second: n for second, n in OUTPUTS.items() if not 23 <= second < 50}
    outputs |= {21: 5, 22: 5}
    first, second, third = recovery(KILLS, MEDIANS, outputs, gaps_ms=[40, 2_100, 10_750])
    assert (first["outage_s"], first["silent_s"]) == (None, 27)
    assert (second["outage_s"], third["outage_s"]) == (2.1, 10.75)
    dead = recovery(KILLS, MEDIANS, dict.fromkeys(range(5, 21), 100), gaps_ms=[30, 0, 0])
    assert [one["outage_s"] for one in dead] == [None] * 3


def test_without_single_outputs_there_is_no_outage() -> None:
    assert all("outage_s" not in one for one in recovery(KILLS, MEDIANS, OUTPUTS))


def test_extra_core_seconds_are_those_above_the_use_before_the_first_kill() -> None:
    # Half a core from 10 to 20; none while the program is down, two cores in seconds 23 to 27,
    # then half a core again, but one core from 80 on. An interval ends half a second later.
    cores = dict.fromkeys(range(10, 120), 0.5) | {20: 0.0, 21: 0.0, 22: 0.0}
    cores |= dict.fromkeys(range(23, 27), 2.0) | dict.fromkeys(range(80, 120), 1.0)
    del cores[20], cores[21], cores[22]  # no process, no sample
    used = [(s + 1.0, 1.0, share) for s, share in cores.items()]
    cpu = CpuTime(used, [(s + 1.5, 1.0) for s in range(5, 119)])
    found = recovery(KILLS, MEDIANS, OUTPUTS, cpu=cpu)
    # 4 s of 2 cores minus 7 s of 0.5; nothing; 12 s of 1 core minus 12 s of 0.5.
    assert [one["extra_core_s"] for one in found] == [4.5, 0.0, 6.0]


def test_a_sample_counts_for_the_part_of_it_that_lies_in_the_time() -> None:
    cpu = CpuTime([(12.0, 4.0, 8.0), (16.0, 4.0, 2.0)], [(20.0, 12.0)])
    assert cpu.seconds(10.0, 14.0) == 2 * 2.0 + 2 * 0.5
    assert cpu.seconds(19.0, 30.0) is None  # most of it was not sampled
    assert recovery(KILLS, MEDIANS, OUTPUTS)[0]["extra_core_s"] is None


def test_latency_that_never_is_normal_again_has_no_extra_core_seconds() -> None:
    cpu = CpuTime([(s + 1.0, 1.0, 0.5) for s in range(120)], [(s + 1.0, 1.0) for s in range(120)])
    high = MEDIANS | dict.fromkeys(range(25, 50), 4_000.0)
    found = recovery(KILLS, high, OUTPUTS, cpu=cpu)
    assert [one["extra_core_s"] for one in found] == [None, 0.0, 0.0]


def test_the_tail_before_is_of_the_measured_seconds_before_the_first_kill() -> None:
    latencies = {s: {10: 98, 700: 2} for s in range(5, 110)}
    latencies |= {9: {9_000: 500}, 20: {8_000: 500}}  # warm-up, and the second of the kill
    found = recovery(KILLS, MEDIANS, OUTPUTS, latencies)
    assert [one["before_p99_ms"] for one in found] == [700, 700, 700]
    fewer = {s: {10: 99, 700: 1} for s in range(5, 110)}
    assert recovery(KILLS, MEDIANS, OUTPUTS, fewer)[0]["before_p99_ms"] == 10
    assert recovery(KILLS, MEDIANS, OUTPUTS)[0]["before_p99_ms"] is None


def test_a_burst_that_nobody_notices_is_high_for_no_time() -> None:
    burst = Disturbance("burst", "burst 1", 10, 19)
    (found,) = recovery([burst], dict.fromkeys(range(10, 19), 100.0), {})
    assert found["high_for_s"] == 0


def test_after_a_kill_normal_is_what_was_before_and_silence_is_counted() -> None:
    kill = Disturbance("kill", "kill of the driver", 20, 60)
    before = dict.fromkeys(range(10, 20), 500.0)
    after = {27: 8000.0, 28: 7000.0, 29: 740.0, 30: 500.0}
    outputs = dict.fromkeys([*range(10, 21), *range(27, 31)], 100)
    (found,) = recovery([kill], before | after, outputs)
    assert found["silent_s"] == 6  # seconds 21 to 26
    assert found["high_for_s"] == 9  # until the end of second 28
    assert sentence("parse", found) == (
        "parse, kill of the driver: silent for 6 s; median up to 8000 ms, normal again after 9 s."
    )


def test_a_pipeline_that_never_gets_over_it_is_told_so() -> None:
    kill = Disturbance("kill", "kill of the worker", 20, 60)
    (never,) = recovery([kill], {19: 500.0, 30: 9000.0}, {19: 1, 30: 1})
    assert never["high_for_s"] is None
    assert sentence("parse", never).endswith("median up to 9000 ms, not normal again in this run.")
    (dead,) = recovery([kill], {19: 500.0}, {19: 1})
    assert sentence("parse", dead).endswith("silent for 40 s; no outputs after it.")


def test_what_came_in_the_second_of_the_kill_is_no_recovery() -> None:
    kill = Disturbance("kill", "kill of the driver", 20, 60)
    seconds = range(10, 21)
    (found,) = recovery([kill], dict.fromkeys(seconds, 500.0), dict.fromkeys(seconds, 100))
    assert (found["silent_s"], found["high_for_s"]) == (39, None)
    assert sentence("parse", found) == (
        "parse, kill of the driver: silent for 39 s; no outputs after it."
    )


def test_a_start_with_a_backlog_has_a_first_output_a_peak_and_an_end() -> None:
    start = Disturbance("start", "start of the pipelines", 20, 50)
    medians = {32: 12_000.0, 33: 9_000.0, 34: 300.0} | dict.fromkeys(range(35, 50), 200.0)
    outputs = {32: 9000, 33: 12_000, 34: 400} | dict.fromkeys(range(35, 50), 400)
    (found,) = recovery([start], medians, outputs)
    assert found["first_output_s"] == 12
    assert found["peak_per_second"] == 12_000
    assert found["high_for_s"] == 14
    assert sentence("parse", found) == (
        "parse, start of the pipelines: first output after 12 s, caught up after 14 s, "
        "peak 12000 outputs/s."
    )
    (silent,) = recovery([start], {}, {})
    assert sentence("parse", silent) == (
        "parse, start of the pipelines: no output, not caught up in this run, peak 0 outputs/s."
    )
