"""The domain gem_packs, and one with what it lacks: short windows, and a window of both inputs."""

import json

from schemas.domain import DomainSpec
from services.definitions.domains import load_domain

GEM_PACKS = load_domain("gem_packs").spec
QUERIES = ("average", "highest", "offers", "dear_average")
SECOND = {"size_s": 1, "slide_s": 1}
_PEAK = {
    "name": "peak", "kind": "aggregate", "reads": ["parse"], "record": "gem_packs_peak",
    "key": "geo", "keys": ["geo"], "window": SECOND,
    "aggregates": [
        {"column": "highest_price", "function": "max", "of": ["purchases.price", "ads.price"]},
    ],
}  # fmt: skip
_TIME = {"type": "long", "logicalType": "timestamp-millis"}
_TYPES = {"run_id": "string", "geo": "string", "window_start": _TIME, "window_end": _TIME}


def with_peak(domain: DomainSpec) -> DomainSpec:
    """The domain with a further stage: the highest price paid or offered in a location and second,
    if there was a purchase and an ad."""
    columns = _TYPES | {"highest_price": "double"}
    fields = [{"name": name, "type": kind} for name, kind in columns.items()]
    schema = {"type": "record", "name": "gem_packs_peak", "fields": fields}
    changed = domain.model_dump()
    changed["stages"] = [*changed["stages"], _PEAK]
    changed["schemas"] = changed["schemas"] | {"gem_packs_peak": json.dumps(schema)}
    return DomainSpec.model_validate(changed)


def queries_over(size_s: int, slide_s: int, *stages: str) -> dict[str, int]:
    """The settings of a workload that change the windows of these queries, or of all."""
    sizes = {f"{name}_s": size_s for name in stages or QUERIES}
    return sizes | {f"{name}_slide_s": slide_s for name in stages or QUERIES}


# Every window but those of revenue and conversions has one second.
IN_SECONDS = with_peak(GEM_PACKS.resolved(queries_over(1, 1)))
