"""A load sent to two pipelines alternately."""

from collections import Counter

import pytest

from schemas.protocol import Interleaving, Pipeline
from services.generator.dataset_plan import dataset_plan
from services.generator.domain_records import new_records
from services.generator.runs import probe_set
from services.generator.sender import PlannedLoad
from tests.unit.generator.made import START_MS, TRAFFIC, a_load, a_request, messages_of

pytestmark = pytest.mark.unit


def a_plan():
    request = a_request(20)
    pipelines = [Pipeline(name=name, summary="-", engine="spark") for name in ("a", "b")]
    turns = Interleaving(block_s=2, order=("a", "b", "b", "a"))
    request = request.model_copy(update={"pipelines": tuple(pipelines), "interleaved": turns})
    return dataset_plan(request, request.domain, new_records(TRAFFIC, request))


def test_each_block_goes_to_the_topics_of_the_pipeline_whose_turn_it_is():
    found = messages_of(PlannedLoad(a_plan(), START_MS, 8))
    blocks = Counter((due_us // 2_000_000, topic) for topic, _, _, due_us in found)
    assert blocks == {
        (0, "traffic.flow.a"): 20,
        (0, "traffic.speed.a"): 20,
        (1, "traffic.flow.b"): 20,
        (1, "traffic.speed.b"): 20,
        (2, "traffic.flow.b"): 20,
        (2, "traffic.speed.b"): 20,
        (3, "traffic.flow.a"): 20,
        (3, "traffic.speed.a"): 20,
    }
    # Everything else is the same.
    alone = messages_of(a_load(20, 8))
    assert [message[1:] for message in found] == [message[1:] for message in alone]


def test_probe_traffic_goes_to_every_pipeline():
    found = probe_set(a_plan(), 0, START_MS * 1000)
    by_pipeline = [[p[1:] for p in found if p[0].endswith(f".{name}")] for name in ("a", "b")]
    assert by_pipeline[0] == by_pipeline[1]
    assert len(found) == 2 * len(by_pipeline[0]) > 0
