"""Probe traffic."""

import pytest

from schemas import codec
from schemas.json_format import decode_json
from schemas.workload import Windows
from services.generator.probe import probe_set, sets_per_second

pytestmark = pytest.mark.unit

NOW_US = 1_700_000_000_750_000


def test_a_set_is_flow_and_speed_of_one_site_in_this_second_and_the_two_before():
    records = probe_set("r1", 7, NOW_US)
    assert [topic for topic, _, _ in records] == ["traffic.flow", "traffic.speed"] * 3
    assert {key for _, key, _ in records} == {b"probe-7"}
    decoded = [codec.decode(value)[1] for _, _, value in records]
    assert [record["observed_at"] for record in decoded] == [
        1_699_999_998_000,
        1_699_999_998_000,
        1_699_999_999_000,
        1_699_999_999_000,
        1_700_000_000_000,
        1_700_000_000_000,
    ]
    for record in decoded:
        assert record["run_id"] == "r1-probe"
        assert record["sequence"] == -1
        assert record["num_lanes"] == 1
        assert record["scheduled_at"] == NOW_US


def test_a_set_is_in_the_format_of_the_workload():
    avro, as_json = probe_set("r1", 7, NOW_US), probe_set("r1", 7, NOW_US, wire_format="json")
    for (topic, _, one), (_, _, other) in zip(avro, as_json, strict=True):
        assert decode_json(topic.replace(".", "_"), other) == codec.decode(one)[1]


def test_sets_for_long_windows_fill_one_window_each_long_ago_one_after_another():
    # 1,700,000,000 s are 5,666,666 whole windows of 300 s and 200 s.
    windows = Windows(tumbling_s=60, sliding_s=300)
    for number, end_s in ((0, (5_666_666 - 10_000) * 300), (1, (5_666_666 - 9_999) * 300)):
        records = [
            codec.decode(value)[1] for _, _, value in probe_set("r", number, NOW_US, windows)
        ]
        observed_s = [record["observed_at"] // 1000 for record in records]
        assert observed_s == [second for second in range(end_s - 300, end_s) for _ in range(2)]


def test_fewer_sets_are_sent_when_each_has_more_records():
    assert sets_per_second(Windows(), 60) == 60
    assert sets_per_second(Windows(tumbling_s=2, sliding_s=6), 60) == 30
    assert sets_per_second(Windows(tumbling_s=60, sliding_s=300), 60) == 1
