"""Runs replayed second by second: steady ones are classified as steady, and falling delays are
detected.

There are a hundred of each: real runs, composed of random pieces at one level, and runs generated
by a model. In another hundred every output has an additional delay that still falls during the
measurement.
"""

import math
from collections import Counter
from random import Random

import pytest

from schemas.percentiles import quantile
from services.conductor.warming import Steadiness, Warming
from tests.unit.conductor.recorded_seconds import Second, recorded, replayed

pytestmark = pytest.mark.unit
REPLAYS, RIGHT = 100, 95
WARM_UP_S = 14
RECORDED = recorded()


def modelled(length_s: int, random: Random) -> list[Second]:
    """Seconds at one level between 2 ms and 2 s. Single seconds deviate by a tenth or more, and so
    does the pipeline's CPU usage."""
    level_ms = math.exp(random.uniform(math.log(2), math.log(2_000)))
    noise, spread = random.uniform(0.05, 0.25), random.uniform(0.1, 0.6)
    cores = random.uniform(0.2, 1.5)
    seconds = []
    for _second in range(length_s):
        now_ms = level_ms * random.lognormvariate(0, noise)
        counts = Counter(round(now_ms * random.lognormvariate(0, spread)) for _output in range(50))
        used = cores * random.lognormvariate(0, 0.1)
        seconds.append(Second(400, used, None, {"join": sorted(counts.items())}))
    return seconds


def drawn(source: str, number: int, length_s: int) -> list[Second]:
    random = Random(number)
    if source == "model":
        return modelled(length_s, random)
    return RECORDED[number % len(RECORDED)].drawn(length_s, random)


def falling(seconds: list[Second], random: Random) -> list[Second]:
    """The same with an additional delay that halves within a fifth to two thirds of the measured
    time. At its start it is at least 10 ms and two fifths of the median, at most three times the
    median."""
    everything: Counter[int] = Counter()
    for second in seconds:
        for counts in second.latencies.values():
            everything.update(dict(counts))
    half_s = (len(seconds) - WARM_UP_S) * random.uniform(0.2, 0.67)
    then_ms = max(10, 0.4 * (quantile(everything, 0.5) or 0)) * random.uniform(1, 3)
    return [
        second.later(then_ms * 0.5 ** ((at - WARM_UP_S) / half_s))
        for at, second in enumerate(seconds)
    ]


def concluded(seconds: list[Second]) -> Steadiness:
    """The result of a run with a fixed warm-up, followed by measurement to the end."""
    return replayed(seconds).conclude(1000 * WARM_UP_S, 1000 * len(seconds))


@pytest.mark.parametrize("measured_s", [15, 30])
@pytest.mark.parametrize("source", ["model", "recorded"])
def test_runs_at_one_level_are_called_steady(source: str, measured_s: int) -> None:
    length_s = WARM_UP_S + measured_s
    found = [concluded(drawn(source, number, length_s)) for number in range(REPLAYS)]
    assert sum(one.steady is True for one in found) >= RIGHT, [one.moving for one in found]


@pytest.mark.parametrize(
    ("source", "measured_s"), [("model", 30), ("recorded", 15), ("recorded", 30)]
)
def test_delays_that_still_fall_are_named(source: str, measured_s: int) -> None:
    length_s = WARM_UP_S + measured_s
    found = [
        concluded(falling(drawn(source, number, length_s), Random(-number)))
        for number in range(REPLAYS)
    ]
    named = [one for one in found if one.steady is False and " fell by " in one.moving[0]]
    assert len(named) >= RIGHT, Counter(one.steady for one in found)


def ended_s(seconds: list[Second]) -> int | None:
    """When an automatic warm-up ends; None if it does not."""
    warming: Warming = replayed(seconds)
    return next((at for at in range(10, len(seconds)) if warming.look(1000 * at).steady), None)


@pytest.mark.parametrize("source", ["model", "recorded"])
def test_a_warm_up_ends_when_a_delay_has_fallen(source: str) -> None:
    """The remaining delay is then small relative to the stage's level: at most a fifth of the
    median, or 5 ms."""
    right = 0
    for number in range(REPLAYS):
        random = Random(-number)
        level = drawn(source, number, 120)
        half_s, first_ms = random.uniform(2, 8), random.uniform(50, 300)
        later = [one.later(first_ms * 0.5 ** (at / half_s)) for at, one in enumerate(level)]
        end_s = ended_s(later)
        (first, *_rest) = level[0].latencies
        median_ms = quantile(Counter(dict(level[60].latencies[first])), 0.5) or 0
        if end_s is not None:
            left_ms = first_ms * 0.5 ** ((end_s - 2) / half_s)
            right += left_ms <= max(5.0, 0.2 * median_ms)
    assert right >= RIGHT


def test_a_run_that_warmed_up_while_it_was_measured_is_not_steady_as_it_was() -> None:
    """As recorded, without a planted delay: from the 10th second on, and from the 35th."""
    run = RECORDED[0]
    assert run.name == "spark-realtime"
    early = replayed(run.seconds).conclude(10_000, 40_000)
    assert early.steady is False
    assert any("CPU time fell" in sentence for sentence in early.moving)
    assert replayed(run.seconds).conclude(35_000, 65_000) == Steadiness(True)
