"""Definitions of ARCHITECTURE.md that few domains need: how far sums may differ, which pair is the
first, and which records keep a window open."""

import json
import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.domain import Aggregate
from services.evaluator.columnar.column_mapping import Combination, ExpectedColumn
from services.evaluator.expected.window_recipe import by_group
from tests.unit.evaluator.gem_packs import (
    IN_SECONDS,
    Event,
    Said,
    a_run,
    expectations,
)
from tests.unit.evaluator.records import DEADLINE_MS, FAR_MS, MEASURE_MS, RUN_ID, START_MS
from tests.unit.evaluator.test_other_stages import WINDOW, verdicts, window, with_stage

pytestmark = pytest.mark.unit

TOLERANCE = 1e-9
# Large values that cancel, values that are lost beside them, and the smallest.
ADVERSARIAL = st.one_of(
    st.sampled_from([1e16, -1e16, 1e300, -1e300, 1.0, 0.1, -0.1, 1e-300, 5e-324, 0.0]),
    st.floats(-1e15, 1e15),
)


def expected(function, values):
    spec = Aggregate(column="x", function=function, of=("a.x",))
    nothing = np.zeros(len(values), np.int64)
    return by_group(spec, np.array(values), nothing, nothing, 1)


def accepts(values: ExpectedColumn, actual: float) -> bool:
    return bool(values.same(np.array([actual]), TOLERANCE)[0])


def by_halves(values):
    """The sum as vectorised engines and combiners compute it."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return by_halves(values[:half]) + by_halves(values[half:])


@given(st.lists(ADVERSARIAL, min_size=1, max_size=200), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_a_sum_of_doubles_is_right_in_any_order(values, random):
    total, mean = expected("sum", values), expected("mean", values)
    shuffled = random.sample(values, len(values))
    for added in (sum(shuffled), sum(sorted(values)), by_halves(shuffled), math.fsum(values)):
        assert accepts(total, added)
        assert accepts(mean, added / len(values))


def test_a_million_doubles_that_cancel_are_right_in_any_order():
    rng = np.random.default_rng(1)
    half = rng.random(500_000) * 10.0 ** rng.integers(-3, 12, 500_000)
    values = np.concatenate([half, -half, [1.0]])
    total = expected("sum", values)
    for order in (np.sort(values), values[::-1], rng.permutation(values)):
        assert accepts(total, float(np.add.accumulate(order)[-1]))
    assert accepts(total, 1.0)


def test_a_sum_is_wrong_from_a_billionth_of_the_absolute_values_on():
    total = expected("sum", [3e9, -3e9, 4e9])  # absolute values: 1e10
    assert accepts(total, 4e9 + 9.9)
    assert not accepts(total, 4e9 + 10.1)
    mean = expected("mean", [3e9, -3e9, 4e9, 0.0])
    assert accepts(mean, 1e9 + 2.4)
    assert not accepts(mean, 1e9 + 2.6)


def test_whole_numbers_are_summed_exactly():
    total = expected("sum", [1 << 60, 1, -(1 << 60)])
    assert total.same(np.array([1, 2]), TOLERANCE).tolist() == [True, False]


def test_what_has_no_sum_in_every_order_must_be_equal():
    assert not accepts(expected("sum", [1e308, 1e308, -1e308, -1e308]), 5.0)
    assert accepts(expected("sum", [1e308, 1e308]), math.inf)
    assert not accepts(expected("sum", [math.inf, 1.0]), 1.0)
    assert accepts(expected("sum", [math.inf, -math.inf]), math.nan)


def test_a_sum_of_the_records_of_a_pair_is_right_in_any_order():
    spec = Aggregate(column="x", function="sum", of=("a.x", "b.x", "c.x"))
    columns = [np.array([value]) for value in (0.1, 1e9, -1e9)]
    total = Combination(spec, is_float=True).of(columns, [np.zeros(1, np.int64)] * 3)
    for order in permutations((0.1, 1e9, -1e9)):
        assert accepts(total, sum(order))


FIRST = with_stage(
    IN_SECONDS.domain(),
    {"run_id": "string", "country": "string"} | WINDOW | {"price": "double"},
    kind="aggregate",
    reads=["offers"],
    key="country",
    keys=["country"],
    window={"size_s": 1, "slide_s": 1},
    aggregates=[{"column": "price", "function": "first", "of": ["price"]}],
)
CLOSES = [
    Event(name, START_MS + 900, 1.0, 90, START_MS + 9_000, geo="unknown")
    for name in ("purchases", "ads")
]


def first_price(*records):
    """The prices for which the output is exact. That of a pair is the highest of its records."""
    (name,) = {
        due.content["country"] for due in expectations([*records], IN_SECONDS)["offers"].values()
    }
    outputs = (
        {"country": name, "price": price} | window(0)
        for price in sorted({one.price for one in records})
    )
    return [
        one["price"]
        for one in outputs
        if verdicts(FIRST, [*records, *CLOSES], one, after_ms=1_000) == {"exact": 1}
    ]


def record(name, after_ms, price, number, partition=0, at_ms=0):
    """at_ms: pairs have equal event times."""
    times = START_MS + after_ms, price, number, START_MS + at_ms
    return Event(name, *times, partition=partition)


def test_the_first_pair_is_the_one_whose_later_record_was_appended_first():
    assert first_price(
        record("purchases", 10, 1.0, 1),
        record("purchases", 20, 2.0, 2, at_ms=500),
        record("ads", 30, 3.0, 3, at_ms=500),
        record("ads", 40, 4.0, 4),
    ) == [3.0]


def test_of_pairs_with_the_same_later_record_the_other_one_decides():
    assert first_price(
        record("purchases", 10, 2.0, 1),
        record("purchases", 20, 5.0, 2),
        record("ads", 30, 1.0, 3),
    ) == [2.0]
    assert first_price(
        record("ads", 10, 2.0, 1),
        record("ads", 20, 5.0, 2),
        record("purchases", 30, 1.0, 3),
    ) == [2.0]


@pytest.mark.parametrize("is_second_read_first", [False, True])
def test_within_a_millisecond_the_lower_partition_is_first_whatever_was_read_first(
    is_second_read_first,
):
    purchases = [
        record("purchases", 10, 2.0, 1, partition=0),
        record("purchases", 10, 5.0, 2, partition=1),
    ]
    assert first_price(
        *(purchases[::-1] if is_second_read_first else purchases),
        record("ads", 30, 1.0, 3),
    ) == [2.0]


def closed_at(stage, *events):
    found = expectations([*events], IN_SECONDS)[stage]
    return {due.closed_ms - MEASURE_MS for due in found.values()}


def an_offer(after_ms, number, geo="g000", name="purchases", at_ms=START_MS):
    return Event(name, MEASURE_MS + after_ms, 10.0, number, at_ms, geo=geo)


PAIR = an_offer(0, 1), an_offer(0, 2, name="ads")
DROPPED = [an_offer(900 * n, 10 + n, "unknown") for n in (1, 2, 3)]  # by the lookup before it
KEPT = [an_offer(900 * n, 10 + n, "g001") for n in (1, 2, 3)]  # of another key, without a partner


@pytest.mark.parametrize(
    ("others", "closed_ms"),
    [
        pytest.param([], DEADLINE_MS, id="silence after the pair"),
        pytest.param(DROPPED, DEADLINE_MS, id="dropped records do not keep it open"),
        pytest.param(KEPT, 2_700 + DEADLINE_MS, id="records of other keys keep it open"),
        pytest.param(
            [
                an_offer(300, 10, "unknown", at_ms=START_MS + 5_000),
                an_offer(400, 11, "unknown", "ads", START_MS + 5_000),
            ],
            400,
            id="event time of dropped records closes it",
        ),
    ],
)
def test_a_window_is_closed_by_the_silence_of_the_records_that_reach_its_stage(others, closed_ms):
    """Late by the millisecond: a deadline after the time at which the window was closed."""
    events = [*PAIR, *others]
    assert closed_at("offers", *events) == {closed_ms}
    (due,) = [one.content for one in expectations(events, IN_SECONDS)["offers"].values()]
    for after_ms, verdict in ((DEADLINE_MS, "exact"), (DEADLINE_MS + 1, "late")):
        found = verdicts_of_offers(events, due, MEASURE_MS + closed_ms + after_ms)
        assert found == {verdict: 1}


def verdicts_of_offers(events, content, at_ms):
    run = a_run("offers", domain=IN_SECONDS.domain())
    run.add(*events, Said("offers", at_ms, content))
    run.advance(FAR_MS)
    return {verdict: count for (_, _, verdict), count in run.totals().verdicts.items()}


class OfNobody(Said):
    """An output with another key."""

    key_on_the_wire = b"nobody"


@pytest.mark.parametrize(("output", "verdict"), [(Said, "exact"), (OfNobody, "wrong")])
def test_an_output_over_all_records_has_the_run_as_its_key(output, verdict):
    events = [an_offer(0, 1), an_offer(10, 2, geo="g001"), an_offer(20, 3, name="ads")]
    run = a_run("total")
    first = {"window_start": START_MS, "window_end": START_MS + 8_000}
    content = {"run_id": RUN_ID, "revenue": 20.0, "average_price": 10.0}
    run.add(*events, output("total", MEASURE_MS + 100, content | first))
    run.advance(FAR_MS)
    counts = {name: count for (_, _, name), count in run.totals().verdicts.items()}
    assert counts == {verdict: 1, "missing": 1}
    keys = [
        (sample["run_id"], sample["expected"].get("key"), sample["actual"].get("key"))
        for sample in map(json.loads, run.samples)
        if sample["verdict"] == "wrong"
    ]
    assert keys == ([] if verdict == "exact" else [(RUN_ID, RUN_ID, "nobody")])
