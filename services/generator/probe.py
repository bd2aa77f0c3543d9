"""Probe traffic: complete records, so that pipelines can prove with output that they run.

Each set is enough for every stage to publish something about it, whatever happened to other sets.
Its run is not the run that is measured, so nobody counts it.
"""

from schemas.domain import RUN_ID, SCHEDULED_AT, SEQUENCE
from schemas.json_format import encode_json
from schemas.protocol import probe_run_id
from services.generator.dataset_plan import DatasetPlan

PROBE_SEQUENCE = -1
RECORDS_PER_S = 360

Probe = tuple[str, bytes, bytes]


def sets_per_second(records: int, most: int) -> int:
    """How many sets of so many records to send in a second: `most`, fewer of large ones."""
    return max(1, min(most, RECORDS_PER_S // records))


def probe_set(plan: DatasetPlan, number: int, now_us: int) -> list[Probe]:
    """Topic, key and value of the records of one set, in the order in which they are to be sent.
    now_us: epoch microseconds."""
    domain, found = plan.domain, []
    as_json = plan.request.workload.content.format == "json"
    header = {
        SEQUENCE: PROBE_SEQUENCE,
        RUN_ID: probe_run_id(plan.request.run_id),
        SCHEDULED_AT: now_us,
    }
    records = plan.records.probe_set(number, now_us // 1000)
    if not records:
        raise ValueError(f"a probe set of the domain {domain.name} is empty")
    for name, fields in records:
        one = domain.input(name)
        record = fields | header
        if as_json:
            value = encode_json(one.record, record, domain.codec)
        else:
            value = domain.codec.encode(one.record, record)
        found.append((one.topic, str(record[one.key]).encode(), value))
    return found
