"""Programs of Python engines, and plans and rows for their stage kinds."""

import importlib.util
import json
from pathlib import Path
from typing import Any

from stages.plan import Plan
from stages.records import Row

from schemas.domain import DomainSpec
from schemas.pipeline import Pipeline
from services.definitions.domains import load_domain
from services.runtime.settings import ROOT

TRAFFIC, GEM_PACKS = load_domain("traffic").spec, load_domain("gem_packs").spec
BASE_MS = 1_700_000_000_000
DEADLINE_MS = 10_000


def program(folder: str) -> Any:
    """The program of an engine."""
    spec = importlib.util.spec_from_file_location("program", ROOT / folder / "engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plan_of(
    domain: DomainSpec,
    folder: Path,
    *outputs: str,
    wire_format: str = "json",
    raise_file: str = "",
) -> Plan:
    """A plan that publishes some stages."""
    path = folder / "plan.json"
    plan = {
        "pipeline": Pipeline(name="mine", summary="-", engine="toy").model_dump(mode="json"),
        "domain": domain.model_dump(mode="json"),
        "outputs": {stage: f"output.mine.{stage}" for stage in outputs},
        "start_offsets": {topic: [0] for topic in domain.topics},
        "bootstrap": "-",
        "properties": {},
        "wire_format": wire_format,
        "deadline_ms": DEADLINE_MS,
        "group": "engine.mine",
        "folder": str(folder),
        "raise_file": raise_file,
    }
    path.write_text(json.dumps(plan))
    return Plan(path)


def kind_of(domain: DomainSpec, folder: Path, stage: str) -> Any:
    """The implementation of a stage."""
    plan = plan_of(domain, folder, stage)
    return plan.kind_of(next(one for one in plan.stages if one["name"] == stage))


def observed(source: str, lane: int, second: int, **fields: Any) -> Row:
    """A record of traffic at a site with two lanes."""
    of = {"run_id": "r", "sequence": 0, "measurement_id": "A", "lane": lane, "num_lanes": 2}
    event_ms = BASE_MS + 1000 * second
    return Row(of | fields, source, event_ms, event_ms + 5 + lane)


def flow(lane: int, second: int, vehicles: int) -> Row:
    return observed("flow", lane, second, flow_vehicles_per_hour=vehicles)


def speed(lane: int, second: int, km: float) -> Row:
    return observed("speed", lane, second, speed_km_per_hour=km)


def sold(second: float, price: int, **fields: Any) -> Row:
    """A purchase, appended 10 ms after its event time."""
    event_ms = BASE_MS + round(1000 * second)
    of = {"run_id": "r", "sequence": 0, "gem_pack_id": 7, "user_id": 1, "geo": "DE"}
    return Row(of | {"price": price} | fields, "purchases", event_ms, event_ms + 10)
