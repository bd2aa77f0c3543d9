"""The plain copy measured before a run."""

import pytest

from schemas.protocol import Phases
from schemas.validation_errors import DefinitionError
from services.conductor.run import floor_request
from services.definitions.domains import load_domain
from services.definitions.pipelines import load_pipeline
from tests.unit.requests import RUN_ID, a_request

pytestmark = pytest.mark.unit


def test_it_is_a_short_run_of_one_copied_stage_at_a_rate_that_any_machine_copies() -> None:
    request = a_request()
    load = request.workload.load.model_copy(update={"rate_per_second": 90_000})
    changes = {"floor_s": 10, "load": load, "thresholds": ("join.p99_ms <= 1",)}
    request = request.model_copy(update={"workload": request.workload.model_copy(update=changes)})
    floor = floor_request(request, load_pipeline("floor"))
    assert (floor.run_id, floor.step_of) == (f"{RUN_ID}-floor", RUN_ID)
    assert [one.name for one in floor.pipelines] == ["floor"]
    assert (floor.stages, floor.published) == (("ingest",), {"floor": ("ingest",)})
    assert floor.workload.load.rate_per_second == 1_000
    assert floor.workload.phases == Phases(warm_up_s=4, measure_s=10, cool_down_s=3)
    assert (floor.workload.thresholds, floor.workload.floor_s) == ((), 0)


def test_a_domain_of_windows_alone_has_no_floor() -> None:
    domain = load_domain("traffic").spec
    windows = tuple(stage for stage in domain.stages if stage.kind == "aggregate")
    request = a_request().model_copy(
        update={"domain": domain.model_copy(update={"stages": windows})}
    )
    with pytest.raises(DefinitionError, match="no stage that a plain copy can publish"):
        floor_request(request, load_pipeline("floor"))
