"""Settings of a pipeline that differ by the purpose of a workload."""

from pathlib import Path

import pytest

from schemas.load import Constant
from schemas.pipeline import Pipeline
from schemas.validation_errors import DefinitionError
from schemas.workload import Workload
from services.definitions.pipelines import for_purpose, in_workload, load_pipeline
from services.definitions.requests import new_request
from services.definitions.trusted import keep_definitions, pipeline_objection
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.unit

FILE = """
name = "mine"
summary = "-"
engine = "kafka-streams"
linger_ms = 0

[for.throughput]
linger_ms = 100
threads = 2

[for.throughput.reads]
tumbling = "join"
"""


def workload(**fields: object) -> Workload:
    given = {"name": "w", "summary": "-", "load": Constant(rate_per_second=1)}
    return Workload.model_validate(given | fields)


def written(folder: Path, text: str = FILE) -> Pipeline:
    path = folder / "mine.toml"
    path.write_text(text)
    return load_pipeline(str(path))


@pytest.mark.parametrize(
    ("purpose", "linger_ms", "reads"),
    [
        (None, 0, {}),
        ("latency", 0, {}),
        ("burst", 0, {}),
        ("throughput", 100, {"tumbling": "join"}),
    ],
)
def test_a_run_has_the_settings_for_the_purpose_of_its_workload(
    tmp_path: Path, purpose: str | None, linger_ms: int, reads: dict[str, str]
) -> None:
    request = new_request(workload(purpose=purpose), [written(tmp_path)], (), TRAFFIC)
    (pipeline,) = request.pipelines
    assert pipeline.settings["linger_ms"] == linger_ms
    assert pipeline.reads == reads
    assert pipeline.purposes == {}, "others do not tell runs apart"


def test_the_workers_of_a_workload_replace_those_for_its_purpose(tmp_path: Path) -> None:
    chosen = in_workload(written(tmp_path), workload(purpose="throughput", workers=3))
    assert (chosen.settings["threads"], chosen.settings["linger_ms"]) == (3, 100)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("[for.throughput]\nlingers = 1", "for.throughput: lingers: kafka-streams has no such"),
        ("[for.throughput]\nlinger_ms = -1", "for.throughput: linger_ms: must be at least 0"),
        ("[for.speed]\nlinger_ms = 1", "for.speed: It must be 'latency', 'throughput' or 'burst'"),
        ("[for.burst]\nengine = 'spark'", "for.burst: engine cannot differ by purpose"),
        ("[for.burst.for.burst]\nlinger_ms = 1", "for.burst: for cannot differ by purpose"),
        ("[for.burst]\nmax_restarts = -1", "for.burst: max_restarts: "),
        ("for = 'burst'", "for: It must be a table"),
    ],
)
def test_a_mistake_is_told_when_the_file_is_read(tmp_path: Path, table: str, reason: str) -> None:
    head = 'name = "mine"\nsummary = "-"\nengine = "kafka-streams"\n'
    with pytest.raises(DefinitionError) as told:
        written(tmp_path, head + table)
    assert reason in str(told.value)


def test_a_runner_starts_the_pipeline_for_each_purpose_of_its_file(tmp_path: Path) -> None:
    pipeline = written(tmp_path)
    for purpose in (None, "throughput"):
        chosen = for_purpose(pipeline, purpose)  # type: ignore[arg-type]
        assert pipeline_objection(chosen, tmp_path / "data", tmp_path) is None
    changed = for_purpose(pipeline, "throughput").model_copy(update={"linger_ms": 50})
    assert pipeline_objection(changed, tmp_path / "data", tmp_path) is not None


def test_a_runner_starts_what_the_command_line_read_for_a_workload(tmp_path: Path) -> None:
    pipeline, data = written(tmp_path), tmp_path / "data"
    asked = workload(purpose="throughput", workers=2)
    keep_definitions(data, [asked], [pipeline])
    assert pipeline_objection(in_workload(pipeline, asked), data) is None
