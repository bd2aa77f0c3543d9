"""Interleaved pipelines: blocks, pairs, and when a difference is called real."""

from collections import Counter

import numpy as np
import pytest

from analysis.costs import COST
from analysis.interleaving import (
    Block,
    PairDifference,
    as_said,
    blocks,
    differences,
    figures_of,
    other_rows,
    outputs_of,
    paired,
    trimmed_mean,
)

pytestmark = pytest.mark.unit
ORDER = ("a", "b", "b", "a")


def test_blocks_are_those_that_are_measured_from_begin_to_end() -> None:
    found = blocks(ORDER, 6, 1000, (1009, 1035))
    assert found == [
        Block("b", 1012, 1018),
        Block("a", 1018, 1024),
        Block("a", 1024, 1030),
    ]
    assert paired(found, "a", "b") == [(found[1], found[0])]
    four = blocks(ORDER, 6, 1000, (1000, 1024))
    assert [(a.start_s, b.start_s) for a, b in paired(four, "a", "b")] == [
        (1000, 1006),
        (1018, 1012),
    ]


def test_an_output_belongs_to_the_block_of_its_input_and_edges_to_none() -> None:
    block = Block("a", 100, 106)
    seconds = {
        100: {3: 1},  # at the edge
        101: {3: 2},
        103: {700: 4},
        104: {2_000: 8},  # output after the block
        98: {9_000: 16},  # input before it, output after it
        105: {3: 32},  # at the other edge
    }
    assert outputs_of(seconds, [block], 1) == {block: Counter({3: 2, 700: 4, 2_000: 8})}


def test_a_block_has_the_figures_that_it_has_outputs_enough_for() -> None:
    assert figures_of(Counter({2: 5})) == {}
    assert figures_of(Counter({2: 10, 5: 2})) == {"p50": 2.0, "mean": 2.5, "middle": 2.0}
    assert figures_of(Counter({2: 1_990, 9: 9, 70: 1}))["p999"] == 9.0
    assert figures_of(Counter({2: 190, 9: 10})) == {
        "p50": 2.0,
        "p95": 2.0,
        "p99": 9.0,
        "mean": 2.35,
        "middle": 2.0,
    }


def test_the_middle_tells_less_than_a_millisecond() -> None:
    # Of 20 outputs, the 6th to the 15th: five of 2 ms, five of 3.
    assert figures_of(Counter({1: 5, 2: 5, 3: 5, 90: 5}))["middle"] == 2.5
    assert figures_of(Counter({1: 5, 2: 4, 3: 6, 90: 5}))["middle"] == 2.6


def test_a_trimmed_mean_has_the_interval_of_tukey_and_mclaughlin() -> None:
    # 10 values: 0 and 90 are cut; winsorised 1,1,2,…,8,8: mean 4.5, deviation 2.718.
    found = trimmed_mean([0, 1, 2, 3, 4, 5, 6, 7, 8, 90], 0.95)
    assert found.value == pytest.approx(4.5)
    # 2.365 (t of 7) · 2.718 / (0.8 · √10)
    assert (found.low, found.high) == pytest.approx((4.5 - 2.541, 4.5 + 2.541), abs=0.002)
    assert trimmed_mean([2.0] * 6, 0.999) == PairDifference(2.0, 2.0, 2.0)


def pairs_of(random: np.random.Generator, count: int, slower_ms: float) -> dict[str, list]:
    """Five stages whose blocks share a drift; b is slower by `slower_ms`."""
    found = {}
    for stage in ("ingest", "parse", "join", "tumbling", "sliding"):
        drift = np.cumsum(random.standard_normal(count))
        noise = random.standard_normal((2, count))
        found[stage] = [
            (
                {"p50": 20 + d + a, "mean": 20 + d + a},
                {"p50": 20 + d + b + slower_ms, "mean": 20 + d + b + slower_ms},
            )
            for d, a, b in zip(drift, *noise, strict=True)
        ]
    return found


def test_of_runs_of_the_same_at_most_one_in_twenty_differs_and_two_ms_are_found() -> None:
    random = np.random.default_rng(20_261_123)

    def real(slower_ms: float) -> bool:
        found = differences(pairs_of(random, 15, slower_ms))
        return any(one.is_real for figures in found.values() for one in figures.values())

    assert sum(real(0.0) for _ in range(200)) <= 10
    assert sum(real(2.0) for _ in range(100)) >= 95


def with_costs(random: np.random.Generator, pairs: dict[str, list], more: float) -> dict[str, list]:
    """The same with a 99.9th percentile of every stage and a cost of the pipeline; those of b are
    higher."""
    noise = random.standard_normal((2, len(pairs["join"])))
    costs = [({COST: 100 + a}, {COST: 100 + b + more}) for a, b in zip(*noise, strict=True)]
    higher = {
        stage: [
            (a | {"p999": 2 * a["p50"]}, b | {"p999": 2 * b["p50"] + more}) for a, b in of_stage
        ]
        for stage, of_stage in pairs.items()
    }
    return higher | {"": costs}


def test_what_is_described_leaves_the_decision_as_it_is() -> None:
    random = np.random.default_rng(20_261_123)
    pairs = pairs_of(random, 15, 0.0)
    more = with_costs(random, pairs, 50.0)
    assert differences(more) == differences(pairs)
    rows = {(row.stage, row.figure): row for row in other_rows(more)}
    assert set(rows) == {(stage, "p999") for stage in pairs} | {("", COST)}
    cost = rows["", COST]
    assert cost.unit == "core-seconds per million records"
    assert (cost.before, cost.after) == pytest.approx((100, 150), abs=1)
    assert cost.low < 50 < cost.high
    assert other_rows(pairs) == []


def test_each_described_interval_holds_in_nineteen_of_twenty_runs() -> None:
    random = np.random.default_rng(20_261_123)
    held = 0
    for _ in range(400):
        (cost,) = other_rows({"": with_costs(random, pairs_of(random, 20, 0.0), 5.0)[""]})
        held += cost.low <= 5 <= cost.high
    assert held == pytest.approx(380, abs=13)  # three standard deviations


def test_too_few_pairs_say_nothing() -> None:
    found = differences(pairs_of(np.random.default_rng(1), 4, 50.0))
    assert found == {}
    assert as_said("a", "b", found, {}, ()) == (
        "Too few blocks to compare b with a: at least 5 pairs are required."
    )


LEVELS = {"join": {"p50": 3.0, "mean": 3.2}}
SLOWER = {
    "join": {"p50": PairDifference(0.2, -0.3, 0.7), "mean": PairDifference(0.4, 0.21, 0.59)},
}


def test_the_decision_is_a_sentence() -> None:
    text = "b is slower in join mean (+0.4 ms, +12%; between +0.21 and +0.59) than a."
    assert as_said("a", "b", SLOWER, LEVELS, ()) == text
    assert as_said("a", "b", SLOWER, LEVELS, ["R was not steady"]) == (
        f"{text} This is not conclusive: R was not steady."
    )
    same = {
        "join": {"mean": PairDifference(0.1, -0.2, 0.4), "middle": PairDifference(0.0, 0.0, 0.0)}
    }
    assert as_said("a", "b", same, LEVELS, ()) == (
        "No significant difference between b and a. The mean differs by at most: join 0.4 ms."
    )
