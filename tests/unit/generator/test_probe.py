"""Probe traffic."""

import pytest

from schemas import codec
from schemas.json_format import decode_json
from services.generator.probe import probe_set

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


def test_probes_speak_the_format_of_the_load():
    avro, text = probe_set("r1", 7, NOW_US), probe_set("r1", 7, NOW_US, "json")
    for (topic, key, value), (same_topic, same_key, as_json) in zip(avro, text, strict=True):
        assert (same_topic, same_key) == (topic, key)
        name, record = codec.decode(value)
        assert decode_json(name, as_json) == record
