"""Pipelines: which implementation can do what."""

import pytest
from pydantic import ValidationError

from schemas.pipeline import Pipeline

pytestmark = pytest.mark.unit


def pipeline(**fields):
    return Pipeline.model_validate({"name": "p", "summary": "-", "mode": "micro-batch"} | fields)


@pytest.mark.parametrize(
    ("fields", "stages"),
    [
        ({}, ("ingest", "parse", "join", "tumbling", "sliding")),
        ({"implementation": "state"}, ("join", "tumbling", "sliding")),
        ({"implementation": "stateless", "mode": "continuous"}, ("ingest", "parse")),
        ({"implementation": "state", "stages": ["join"]}, ("join",)),
    ],
)
def test_a_pipeline_has_the_stages_of_its_implementation_unless_it_names_them(fields, stages):
    assert pipeline(**fields).stages == stages


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mode": "continuous"}, "customised runs in the modes real-time, micro-batch"),
        ({"implementation": "state", "mode": "real-time"}, "state runs in the modes micro-batch"),
        ({"implementation": "state", "stages": ["parse"]}, "state has only the stages join"),
        ({"implementation": "built-in"}, "built-in can only publish incomplete windows"),
        ({"mode": "real-time", "state_store": "hdfs"}, "real-time needs state_store rocksdb"),
        ({"implementation": "state", "state_store": "hdfs"}, "needs state_store rocksdb"),
        ({"incomplete_windows": "publish"}, "customised can only withhold incomplete windows"),
    ],
)
def test_what_an_implementation_cannot_do_is_refused_with_what_it_can(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        pipeline(**fields)
