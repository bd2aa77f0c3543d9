"""What a domain refuses."""

import pytest
from pydantic import ValidationError

from schemas.domain import StageSpec

pytestmark = pytest.mark.unit

AGGREGATE = {
    **{"name": "means", "kind": "aggregate", "reads": ["parse"], "record": "mean"},
    **{"key": "room", "keys": ["room"], "window": {"size_s": 1, "slide_s": 1}},
    "aggregates": [{"column": "celsius", "function": "mean", "of": ["temperature.celsius"]}],
}


def test_once_per_needs_windows_that_are_complete_by_count() -> None:
    counted = {"complete": {"column": "sensors"}, "once_per": ["sensor"]}
    assert StageSpec.model_validate(AGGREGATE | counted).once_per == ("sensor",)
    reason = "the stage means has once_per, which applies only to windows with complete"
    with pytest.raises(ValidationError, match=reason):
        StageSpec.model_validate(AGGREGATE | {"once_per": ["sensor"]})


def test_an_aggregate_without_keys_is_over_all_records_and_has_the_run_as_its_key() -> None:
    without = AGGREGATE | {"keys": []}
    assert StageSpec.model_validate(without | {"key": "run_id"}).is_global
    reason = "the stage means has no keys, so its key must be run_id"
    with pytest.raises(ValidationError, match=reason):
        StageSpec.model_validate(without)


def test_a_window_that_is_complete_by_count_needs_keys() -> None:
    counted = {"keys": [], "key": "run_id", "complete": {"column": "sensors"}}
    with pytest.raises(ValidationError, match="the stage means is a aggregate and needs keys"):
        StageSpec.model_validate(AGGREGATE | counted)
