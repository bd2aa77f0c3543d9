"""Probe traffic of the domain."""

import pytest

from services.generator.runs import probe_set
from tests.unit.generator.made import TRAFFIC, a_plan, decoded

pytestmark = pytest.mark.unit

NOW_US = 1_700_000_000_750_000


def records_of_set(number, wire_format="avro", **fields):
    plan = a_plan(2, content={"format": wire_format}, **fields)
    return [
        (topic, key, decoded(TRAFFIC.spec, topic, value, wire_format)[1])
        for topic, key, value in probe_set(plan, number, NOW_US)
    ]


def test_a_set_is_flow_and_speed_of_one_site_in_this_second_and_the_two_before():
    found = records_of_set(7)
    assert [topic for topic, _, _ in found] == ["traffic.flow", "traffic.speed"] * 3
    assert {key for _, key, _ in found} == {b"probe-7"}
    assert [record["observed_at"] for _, _, record in found] == [
        1_699_999_998_000,
        1_699_999_998_000,
        1_699_999_999_000,
        1_699_999_999_000,
        1_700_000_000_000,
        1_700_000_000_000,
    ]
    for _, _, record in found:
        assert record["run_id"] == "r1-probe"
        assert record["sequence"] == -1
        assert record["num_lanes"] == 1
        assert record["scheduled_at"] == NOW_US


def test_a_set_is_in_the_format_of_the_workload():
    assert records_of_set(7, "json") == records_of_set(7)


def test_sets_for_long_windows_fill_one_window_each_long_ago_one_after_another():
    # 1,700,000,000 s are 5,666,666 whole windows of 300 s and 200 s.
    windows = {"tumbling_s": 60, "sliding_s": 300}
    for number, end_s in ((0, (5_666_666 - 100_000) * 300), (1, (5_666_666 - 99_999) * 300)):
        found = records_of_set(number, windows=windows)
        observed_s = [record["observed_at"] // 1000 for _, _, record in found]
        assert observed_s == [second for second in range(end_s - 300, end_s) for _ in range(2)]
