"""Probe traffic: a few complete records, so that pipelines can prove with output that they run.

Each set is a 1-lane site of its own with one sliding window of observations: enough for every stage
to publish something about it, whatever happened to other sets. Its run is not the run that is
measured, so nobody counts it.

Windows of one second are those before now. Longer ones are long ago, and each set has a window of
its own, later than that of the set before, so that windows close which wait for time to pass.
"""

from schemas import codec
from schemas.catalogue import FLOW, SPEED, record_of
from schemas.json_format import encode_json
from schemas.workload import REPORT_S, Windows

PROBE_SEQUENCE = -1
LONG_AGO_WINDOWS = 10_000  # more than there are sets in a run's preparation
RECORDS_PER_S = 360
DEFAULT_WINDOWS = Windows()


def probe_run_id(run_id: str) -> str:
    """Run id that probe records carry."""
    return f"{run_id}-probe"


def sets_per_second(windows: Windows, most: int) -> int:
    """How many sets to send in a second: `most`, fewer when a set has more records than usual."""
    return max(1, min(most, RECORDS_PER_S // (2 * windows.sliding_s)))


def probe_set(
    run_id: str,
    number: int,
    now_us: int,
    windows: Windows = DEFAULT_WINDOWS,
    wire_format: str = "avro",
) -> list[tuple[str, bytes, bytes]]:
    """Topic, key and value of the records of one set, in the order of their event time.

    now_us: epoch microseconds; wire_format: `avro` or `json`.
    """
    measurement_id = f"probe-{number}"
    encode = encode_json if wire_format == "json" else codec.encode
    records = []
    for observed_ms in _observed_ms(number, now_us // 1_000_000, windows):
        observation = {
            "measurement_id": measurement_id,
            "lane": "lane1",
            "num_lanes": 1,
            "latitude": 51.44443,
            "longitude": 5.42692,
            "observed_at": observed_ms,
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


def _observed_ms(number: int, now_s: int, windows: Windows) -> range:
    """Event times of a set, one a second, for a whole sliding window."""
    length_s = windows.sliding_s
    if windows.tumbling_s == REPORT_S:  # any seconds make whole windows
        end_s = now_s + 1
    else:
        end_s = (now_s // length_s - max(LONG_AGO_WINDOWS - number, 0)) * length_s
    return range((end_s - length_s) * 1000, end_s * 1000, 1000 * REPORT_S)
