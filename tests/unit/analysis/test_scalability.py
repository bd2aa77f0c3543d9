"""The scalability law, checked with rates that follow it, and with data that are no evidence for
it."""

import pytest

from analysis import scalability as module
from analysis.scalability import FittedLaw, ScalingPoint, fitted, resampled
from schemas.report import Workers
from tests.unit.reports import part_of

pytestmark = pytest.mark.unit

# λ = 1000, σ = 0.1, κ = 0.01: 2000 / 1.12, 4000 / 1.42, 8000 / 2.26.
BY_THE_LAW = [(1, 1000.0), (2, 1785.7142857), (4, 2816.9014085), (8, 3539.8230088)]
ROOMY = {"limited_by": ("pipeline",), "cores": 16, "free_cores": 14.0}


def scalability(points):
    """The result as JSON, with the objections by number of workers."""
    workers = [part_of(Workers, {"workers": point.workers}) for point in points]
    found = module.scalability("S", "p", points, workers).as_json()
    objections = {str(one["workers"]): one["objection"] for one in found["points"]}
    return found | {"objections": {name: text for name, text in objections.items() if text}}


def points(rates, within=0.0, **fields):
    """One search each, with bounds at this distance from the rate."""
    told = ROOMY | fields
    return [
        ScalingPoint(workers, ((rate * (1 - within), rate * (1 + within)),), **told)
        for workers, rate in rates
    ]


def test_rates_that_follow_the_law_give_its_numbers():
    law = fitted(BY_THE_LAW)
    assert law.rate_of_one == pytest.approx(1000)
    assert law.contention == pytest.approx(0.1)
    assert law.coherency == pytest.approx(0.01)
    assert law.rate(16) == pytest.approx(16_000 / (1 + 1.5 + 2.4))  # 3265.3
    # √(0.9 / 0.01) = 9.5: 9000 / 2.52 = 3571.4 and 10 000 / 2.8 = 3571.4, of which the lower is 9.
    assert law.peak_workers in (9, 10)


@pytest.mark.parametrize(
    ("rates", "contention", "coherency"),
    [
        ([(1, 100), (2, 200), (4, 400)], 0, 0),
        # Amdahl: 1 / (0.25 + 0.75 / N).
        ([(1, 100), (2, 160), (4, 228.5714286)], 0.25, 0),
        # Only the first worker contributes.
        ([(1, 100), (2, 100), (4, 100)], 1, 0),
        # Superlinear, which the law excludes: the nearest fit is linear.
        ([(1, 100), (2, 220), (4, 480)], 0, 0),
    ],
)
def test_numbers_stay_within_their_bounds(rates, contention, coherency):
    law = fitted(rates)
    assert law.contention == pytest.approx(contention, abs=1e-6)
    assert law.coherency == pytest.approx(coherency, abs=1e-6)


def test_more_workers_are_always_better_without_coherency():
    assert FittedLaw(100, 0.2, 0).peak_workers is None
    assert FittedLaw(100, 1, 0.1).peak_workers == 1


@pytest.mark.parametrize(("count", "there"), [(1, "there is 1"), (2, "there are 2")])
def test_fewer_than_three_numbers_of_workers_determine_nothing(count, there):
    rates = BY_THE_LAW[:count]
    assert fitted(rates + rates) is None
    found = scalability(points(rates))
    assert (found["law"], found["predicted"]) == (None, [])
    assert found["said"][-1] == (
        f"A law with 3 unknowns needs rates for 3 numbers of workers; {there}, so no law is fitted."
    )


def test_intervals_come_from_the_bounds_of_the_searches():
    sure = scalability(points(BY_THE_LAW))["law"]
    assert sure["contention"]["low"] == pytest.approx(0.1)
    assert sure["contention"]["high"] == pytest.approx(0.1)
    found = scalability(points(BY_THE_LAW, within=0.05))
    unsure = found["law"]["rate_of_one"]
    assert 940 < unsure["low"] < 980 < 1000 < 1020 < unsure["high"] < 1060
    again = scalability(points(BY_THE_LAW, within=0.05))
    assert again == found


def test_several_searches_of_a_number_of_workers_are_drawn_from():
    apart = ScalingPoint(1, ((800.0, 800.0), (1200.0, 1200.0)), **ROOMY)
    drawn = {round(law.rate(1)) for law in resampled([apart, *points(BY_THE_LAW[1:])])}
    assert min(drawn) == 859  # the law also contributes to the other rates
    assert max(drawn) == 1168
    assert apart.capacity == 1000
    assert ScalingPoint(1, ((800.0, 900.0), (1200.0, 1300.0), (1000.0, None))).capacity == 1000


def test_what_is_found_lies_in_its_interval():
    # The capacity is up to a tenth above the sustained rate.
    above = [ScalingPoint(n, ((rate, 1.1 * rate),), **ROOMY) for n, rate in BY_THE_LAW]
    found = scalability(above)
    figures = [found["law"][name] for name in ("rate_of_one", "contention", "coherency")]
    figures += [one["rate_per_second"] for one in found["predicted"]]
    assert found["law"]["rate_of_one"]["value"] == pytest.approx(1050)
    for figure in figures:
        assert figure["low"] < figure["value"] < figure["high"]


def test_it_says_what_is_evidence_and_where_extrapolation_begins():
    found = scalability(points(BY_THE_LAW))
    assert found["evidence"] == [1, 2, 4, 8]
    assert found["objections"] == {}
    first, law, end = found["said"]
    assert first == (
        "1, 2, 4 and 8 workers are evidence of how the pipeline scales: each worker had a "
        "core, and the pipeline was the limit."
    )
    assert law == (
        "Universal Scalability Law of 1, 2, 4 and 8 workers: one sustains 1,000/s (1,000 to "
        "1,000), contention 10 % (10 to 10 %), coherency 1 % (1 to 1 %)."
    )
    assert end.startswith(
        "Extrapolated beyond 8 workers: 16 would sustain 3,265/s (3,265 to 3,265) and 32 would "
        "sustain "
    )
    assert [(one["workers"], one["is_measured"]) for one in found["predicted"]] == [
        *((workers, True) for workers in (1, 2, 4, 8)),
        *((workers, False) for workers in (16, 32)),
    ]


def test_two_cores_cannot_show_how_four_workers_scale():
    told = {"cores": 2, "taken": {"generator": 0.55, "kafka": 0.3, "store": 0.1, "evaluator": 0.2}}
    found = scalability(points([(1, 1000), (2, 1300), (4, 1300)], free_cores=1.2, **told))
    assert found["evidence"] == [1]
    used = "in use by others: generator 0.55, kafka 0.30, evaluator 0.20"
    assert found["said"][:3] == [
        "1 worker is evidence of how the pipeline scales: each worker had a core, and the "
        "pipeline was the limit.",
        f"2 workers are not evidence: 1.2 of 2 cores were free; {used}.",
        f"4 workers are not evidence: the machine has 2 cores; {used}.",
    ]
    assert found["law"]["of_workers"] == [1, 2, 4]
    assert found["said"][4] == "The law includes limits of this machine."


def test_a_law_of_evidence_leaves_out_what_is_none():
    full = ScalingPoint(8, ((2000.0, 2100.0),), ("machine",), cores=8, free_cores=5.0)
    found = scalability([*points(BY_THE_LAW[:3]), full])
    assert found["law"]["of_workers"] == [1, 2, 4]
    assert found["law"]["coherency"]["value"] == pytest.approx(0.01)
    assert not any("limits of this machine" in sentence for sentence in found["said"])


@pytest.mark.parametrize(
    ("fields", "objection"),
    [
        ({}, ""),
        ({"limited_by": ("generator",)}, "the generator was the limit"),
        ({"limited_by": ("pipeline", "broker")}, "the broker was the limit"),
        ({"bounds": ()}, "no valid search found a rate, limited by the pipeline"),
        ({"bounds": (), "limited_by": ()}, "no valid search found a rate"),
        ({"bounds": ((100.0, None),)}, "every rate tried was sustained"),
        ({"free_cores": None}, "the number of free cores is unknown"),
        ({"free_cores": 1.9}, "1.9 of 16 cores were free"),
        ({"cores": 1}, "the machine has 1 cores"),
    ],
)
def test_what_is_no_evidence_says_why(fields, objection):
    told = {"bounds": ((100.0, 110.0),)} | ROOMY | fields
    assert ScalingPoint(2, **told).objection == objection


def test_nothing_at_all_is_said_so():
    found = scalability([ScalingPoint(1, cores=2), ScalingPoint(2, cores=2)])
    assert found["said"] == [
        "No result is evidence of how the pipeline scales.",
        "1 worker is not evidence: no valid search found a rate.",
        "2 workers are not evidence: no valid search found a rate.",
        "A law with 3 unknowns needs rates for 3 numbers of workers; there are 0, so no law is "
        "fitted.",
    ]
