"""Decoded records to the rows that are paired: names become codes, times become integers."""

from collections.abc import Callable

import numpy as np

from services.evaluator.columns import Ints
from services.evaluator.decode import Decoded
from services.evaluator.inputs import BLOCK, FLOW, SPEED, InputRows, Inputs
from services.evaluator.outputs import Content, Outputs

VALUE_COLUMN = {FLOW: "flow_vehicles_per_hour", SPEED: "speed_km_per_hour"}


def digests(values: list[bytes]) -> Ints:
    """64-bit hashes of whole encoded values, comparable within this process."""
    return np.fromiter(map(hash, values), np.int64, len(values))


def input_rows(
    kind: int, decoded: Decoded, appended_ms: Ints, digest: Ints, inputs: Inputs
) -> InputRows:
    """Rows of one input topic; every row of `decoded` has its time and digest."""
    return InputRows(
        kind=kind,
        appended_ms=appended_ms,
        scheduled_us=decoded.ints("scheduled_at"),
        sequence=decoded.ints("sequence"),
        site=inputs.sites.of_strings(decoded.columns.column("measurement_id")),
        lane=inputs.lanes.of_strings(decoded.columns.column("lane")),
        num_lanes=decoded.ints("num_lanes"),
        observed_ms=decoded.ints("observed_at"),
        latitude=decoded.floats("latitude"),
        longitude=decoded.floats("longitude"),
        period_s=decoded.ints("period_s"),
        accuracy_percent=decoded.ints("accuracy_percent"),
        value=decoded.floats(VALUE_COLUMN[kind]),
        digest=digest,
    )


def _ingest(decoded: Decoded, appended_ms: Ints, digest: Ints, _inputs: Inputs) -> Outputs:
    sequence = decoded.ints("sequence")
    return Outputs(sequence // BLOCK, sequence % BLOCK, appended_ms, {"digest": digest})


def _parse(decoded: Decoded, appended_ms: Ints, _digest: Ints, inputs: Inputs) -> Outputs:
    sequence = decoded.ints("sequence")
    flow, speed = decoded.floats(VALUE_COLUMN[FLOW]), decoded.floats(VALUE_COLUMN[SPEED])
    has_flow = decoded.present(VALUE_COLUMN[FLOW])
    has_speed = decoded.present(VALUE_COLUMN[SPEED])
    content: Content = {
        # A record that has both values or none is neither kind, hence equal to no input.
        "kind": np.where(has_flow == has_speed, -2, np.where(has_flow, FLOW, SPEED)),
        "channel": _channel(decoded, inputs),
        "num_lanes": decoded.ints("num_lanes"),
        "observed_ms": decoded.ints("observed_at"),
        "latitude": decoded.floats("latitude"),
        "longitude": decoded.floats("longitude"),
        "period_s": decoded.ints("period_s"),
        "accuracy_percent": decoded.ints("accuracy_percent"),
        "value": np.where(has_flow, flow, speed),
    }
    return Outputs(sequence // BLOCK, sequence % BLOCK, appended_ms, content)


def _join(decoded: Decoded, appended_ms: Ints, _digest: Ints, inputs: Inputs) -> Outputs:
    content: Content = {
        "num_lanes": decoded.ints("num_lanes"),
        "flow": decoded.floats(VALUE_COLUMN[FLOW]),
        "speed": decoded.floats(VALUE_COLUMN[SPEED]),
    }
    observed_ms = decoded.ints("observed_at")
    return Outputs(observed_ms, _channel(decoded, inputs), appended_ms, content)


def _tumbling(decoded: Decoded, appended_ms: Ints, _digest: Ints, inputs: Inputs) -> Outputs:
    start_ms = decoded.ints("window_start")
    content: Content = {
        "length_ms": decoded.ints("window_end") - start_ms,
        "lanes": decoded.ints("lanes"),
        "flow": decoded.floats("accumulated_flow_vehicles_per_hour"),
        "speed": decoded.floats("average_speed_km_per_hour"),
    }
    return Outputs(start_ms, _site(decoded, inputs), appended_ms, content)


def _sliding(decoded: Decoded, appended_ms: Ints, _digest: Ints, inputs: Inputs) -> Outputs:
    start_ms = decoded.ints("window_start")
    names = ("flow_change_short", "flow_change_long", "speed_change_short", "speed_change_long")
    content: Content = {name: decoded.floats(name) for name in names}
    content["length_ms"] = decoded.ints("window_end") - start_ms
    return Outputs(start_ms, _site(decoded, inputs), appended_ms, content)


# Names that only an output knows get codes too: the input that explains it may come later.
def _site(decoded: Decoded, inputs: Inputs) -> Ints:
    return inputs.sites.of_strings(decoded.columns.column("measurement_id"), or_unknown=True)


def _channel(decoded: Decoded, inputs: Inputs) -> Ints:
    lane = inputs.lanes.of_strings(decoded.columns.column("lane"), or_unknown=True)
    return inputs.channel(_site(decoded, inputs), lane)


OUTPUT_ROWS: dict[str, Callable[[Decoded, Ints, Ints, Inputs], Outputs]] = {
    "ingest": _ingest,
    "parse": _parse,
    "join": _join,
    "tumbling": _tumbling,
    "sliding": _sliding,
}
