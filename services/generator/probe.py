"""Probe traffic: a few complete records, so that pipelines can prove with output that they run.

Each set is a 1-lane site of its own with three seconds of observations: enough for every stage to
publish something about it, whatever happened to other sets. Its run is not the run that is
measured, so nobody counts it.
"""

from schemas import codec
from schemas.catalogue import FLOW, SPEED, record_of
from schemas.json_format import encode_json

PROBE_SECONDS = 3
PROBE_SEQUENCE = -1


def probe_run_id(run_id: str) -> str:
    """Run id that probe records carry."""
    return f"{run_id}-probe"


def probe_set(
    run_id: str, number: int, now_us: int, wire_format: str = "avro"
) -> list[tuple[str, bytes, bytes]]:
    """Topic, key and value of the records of one set, observed in this second and the two before.

    now_us: epoch microseconds. wire_format: `avro` or `json`, as the load that follows.
    """
    encode = encode_json if wire_format == "json" else codec.encode
    measurement_id = f"probe-{number}"
    this_second_ms = now_us // 1_000_000 * 1000
    records = []
    for age_s in reversed(range(PROBE_SECONDS)):
        observation = {
            "measurement_id": measurement_id,
            "lane": "lane1",
            "num_lanes": 1,
            "latitude": 51.44443,
            "longitude": 5.42692,
            "observed_at": this_second_ms - 1000 * age_s,
            "period_s": 60,
            "accuracy_percent": 100,
            "sequence": PROBE_SEQUENCE,
            "run_id": probe_run_id(run_id),
            "scheduled_at": now_us,
        }
        flow = observation | {"flow_vehicles_per_hour": 600}
        speed = observation | {"speed_km_per_hour": 100.0}
        for topic, record in ((FLOW, flow), (SPEED, speed)):
            value = encode(record_of(topic), record)
            records.append((topic, measurement_id.encode(), value))
    return records
