"""What the records say: the columns of any records of a load. Pure.

Even records are flows, odd ones speeds. Everything a record says is a pure function of its number,
the load and the content, so the same seed gives the same bytes, whoever makes them.
"""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.faults import IMPOSSIBLE, IMPOSSIBLE_VALUE
from services.generator.names import Names
from services.generator.recording import Int64s, Recording

Kind = Literal["flow", "speed"]
KINDS: tuple[Kind, Kind] = ("flow", "speed")  # of the even and of the odd records
VALUE_COLUMNS: dict[Kind, str] = {
    "flow": "flow_vehicles_per_hour",
    "speed": "speed_km_per_hour",
}


@dataclass(frozen=True)
class Rows:
    """Records, one element each.

    sequence: number in the run. due_us: microseconds after the load's start at which it is to be
    sent. second: second of the load that answers for it, -1 for the second copy of a duplicate.
    row: of the recording; source: its lane there; site, lane: numbers of names; observed_ms: event
    time, epoch milliseconds; fault: kind of fault.
    """

    sequence: Int64s
    due_us: Int64s
    second: NDArray[np.int32]
    source: Int64s
    row: Int64s
    site: Int64s
    lane: Int64s
    num_lanes: NDArray[np.int32]
    observed_ms: Int64s
    fault: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, index: "NDArray[np.int64] | NDArray[np.bool_] | slice") -> "Rows":
        """Some of them."""
        return Rows(*(getattr(self, field.name)[index] for field in fields(self)))


def concatenated(parts: list[Rows]) -> Rows:
    """All rows of several; there must be at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Rows(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Rows)))


@dataclass(frozen=True)
class Wording:
    """What turns rows into records: the recording, the names, and what all records share."""

    recording: Recording
    sites: Names
    lanes: Names
    run_id: str
    load_start_ms: int

    def columns(self, kind: Kind, rows: Rows) -> pa.RecordBatch:
        """The records of one kind in the columns of their schema."""
        source, recording = pa.array(rows.source), self.recording
        count = len(rows)
        scheduled_us = rows.due_us + self.load_start_ms * 1000
        return pa.RecordBatch.from_pydict(
            {
                "measurement_id": self.sites.table(rows.site).take(pa.array(rows.site)),
                "lane": self.lanes.table(rows.lane).take(pa.array(rows.lane)),
                "num_lanes": pa.array(rows.num_lanes, pa.int32()),
                "latitude": pa.array(recording.latitudes).take(source),
                "longitude": pa.array(recording.longitudes).take(source),
                "observed_at": pa.array(rows.observed_ms, pa.timestamp("ms")),
                "period_s": pa.array(recording.periods_s[rows.row], pa.int32()),
                "accuracy_percent": pa.array(recording.accuracies_percent[rows.row], pa.int32()),
                VALUE_COLUMNS[kind]: self._values(kind, rows),
                "sequence": pa.array(rows.sequence, pa.int64()),
                "run_id": pa.repeat(pa.scalar(self.run_id, pa.string()), count),
                "scheduled_at": pa.array(scheduled_us, pa.timestamp("us")),
            }
        )

    def _values(self, kind: Kind, rows: Rows) -> pa.Array:
        impossible = rows.fault == IMPOSSIBLE
        if kind == "flow":
            flows = self.recording.flows_vehicles_per_hour[rows.row]
            flows[impossible] = IMPOSSIBLE_VALUE
            return pa.array(flows, pa.int32())
        speeds = self.recording.speeds_km_per_hour[rows.row]
        speeds[impossible] = IMPOSSIBLE_VALUE
        return pa.array(speeds, pa.float64())
