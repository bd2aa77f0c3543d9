"""Plans in the runner's format, for tests that start an engine's program themselves."""

from pathlib import Path

from schemas import catalogue
from schemas.domain import DomainSpec
from schemas.engine import EnginePlan
from schemas.pipeline import Pipeline
from services.runtime.program import plan_file
from services.runtime.settings import ServiceSettings


def write_plan(
    settings: ServiceSettings,
    folder: Path,
    run_id: str,
    pipeline: Pipeline,
    domain: DomainSpec,
    stages: tuple[str, ...],
    start_offsets: dict[str, tuple[int, ...]],
    wire_format: str = "avro",
) -> Path:
    """Write the plan of a pipeline; returns the file's path."""
    home = folder / "runs" / run_id
    home.mkdir(parents=True, exist_ok=True)
    plan = EnginePlan.model_validate(
        {
            "run_id": run_id,
            "pipeline": pipeline,
            "domain": domain,
            "outputs": {stage: catalogue.output_topic(pipeline.name, stage) for stage in stages},
            "start_offsets": {topic: start_offsets[topic] for topic in domain.topics},
            "bootstrap": settings.open_bootstrap,
            "wire_format": wire_format,
            "group": catalogue.engine_group(pipeline.name, run_id),
            "deadline_ms": 10_000,
            "warm_up_s": 0,
            "folder": str(home / pipeline.name),
        }
    )
    path = plan_file(home, pipeline.name)
    path.write_text(plan.model_dump_json())
    return path
