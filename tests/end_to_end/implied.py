"""Expected results of a run, from the topics on the broker of a running stack."""

from collections import Counter
from typing import Any

from schemas import catalogue
from schemas.protocol import PhasePlan
from services.runtime.kafka import assigned_consumer, end_offsets
from services.runtime.settings import ServiceSettings
from tests.integration.brute_force import STAGES, appended_ms, handed_to, judged
from tests.integration.service_process import Reader
from tests.traffic import INPUTS

Judged = tuple[Counter[Any], Counter[Any]]


def judged_by_brute_force(
    settings: ServiceSettings,
    run_id: str,
    pipelines: tuple[str, ...],
    deadline_ms: int,
    *,
    handed: bool = False,
) -> dict[str, Judged]:
    """Verdicts and latencies of the measured phase of calibration pipelines, by pipeline. handed:
    latencies from when they were handed the inputs, with verdicts of no meaning."""
    reader = Reader(settings, catalogue.CONTROL)
    commands = reader.until(run_id, lambda found: any(one["command"] == "start" for one in found))
    reader.close()
    (body,) = [one["body"] for one in commands if one["command"] == "start"]
    phases = PhasePlan.model_validate_json(body)
    measured_us = (phases.measure_start_ms * 1000, phases.measure_end_ms * 1000)
    outputs = [catalogue.output_topic(name, stage) for name in pipelines for stage in STAGES]
    consumer = assigned_consumer(settings, "tests")
    ends = {topic: end_offsets(consumer, topic) for topic in (*INPUTS, *outputs)}
    consumer.close()
    return {
        name: judged(
            *(settings, run_id, name, deadline_ms, ends, measured_us),
            handed_to(settings, run_id, name) if handed else appended_ms,
        )
        for name in pipelines
    }
