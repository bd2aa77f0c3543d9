"""A recording: the observations of each lane of each site, one row per observation.

Rows of a lane are contiguous and ordered by time; lanes of a site are contiguous; sites and lanes
are sorted by name.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schemas.records import Int64s
from services.definitions.recordings import FieldSpec, read_rows
from services.runtime.events import DeadLetter

from .content import FIELDS, Content

SAMPLE = Path("data") / "ndw_traffic_2017-03-15.csv"
MIN_PERIOD_US = 1_000_000
_INT_MAX = 2**31 - 1
_FIELDS = (
    FieldSpec("measurement_id", "text"),
    FieldSpec("lane", "text", "lane1"),
    FieldSpec("latitude", "number", 0.0, -90, 90),
    FieldSpec("longitude", "number", 0.0, -180, 180),
    FieldSpec("observed_at", "time"),
    FieldSpec("period_s", "whole", 60, 0, _INT_MAX),
    FieldSpec("accuracy_percent", "whole", 100, 0, 100),
    FieldSpec("flow_vehicles_per_hour", "whole", None, 0, _INT_MAX),
    FieldSpec("speed_km_per_hour", "number", None, 0, math.inf),
)
assert tuple(each.name for each in _FIELDS) == FIELDS


@dataclass(frozen=True)
class Observation:
    """One row of a file. observed_at: epoch microseconds, event time."""

    measurement_id: str
    lane: str
    latitude: float
    longitude: float
    observed_at: int
    period_s: int
    accuracy_percent: int
    flow_vehicles_per_hour: int
    speed_km_per_hour: float


@dataclass(frozen=True)
class Recording:
    """Observations as arrays: S sites, L lanes, R rows.

    Per site: site_names, first_lanes (index of its first lane), site_lanes (number of lanes). Per
    lane: lane_names, site_of_lane, num_lanes, latitudes, longitudes, first_rows, row_counts. Per
    row: lane_of_row, times_us, periods_s, accuracies_percent, flows_vehicles_per_hour,
    speeds_km_per_hour.
    """

    site_names: tuple[str, ...]
    first_lanes: Int64s
    site_lanes: Int64s
    lane_names: tuple[str, ...]
    site_of_lane: Int64s
    num_lanes: NDArray[np.int32]
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    first_rows: Int64s
    row_counts: Int64s
    lane_of_row: Int64s
    times_us: Int64s
    periods_s: NDArray[np.int32]
    accuracies_percent: NDArray[np.int32]
    flows_vehicles_per_hour: NDArray[np.int32]
    speeds_km_per_hour: NDArray[np.float64]

    @cached_property
    def by_time(self) -> Int64s:
        """Rows ordered by time, then by lane."""
        return np.argsort(self.times_us, kind="stable")

    @property
    def period_us(self) -> int:
        """Period of a replay: the recorded span plus one typical step."""
        times = np.unique(self.times_us)
        step_us = int(np.median(np.diff(times))) if len(times) > 1 else MIN_PERIOD_US
        return int(times[-1] - times[0]) + max(step_us, 1)


def read_observations(content: Content, folder: Path) -> tuple[list[Observation], list[DeadLetter]]:
    """Observations of the file named by a content, or of the sample, which has no bad rows. Raises
    InputError."""
    path = Path(content.path) if content.source == "file" else folder / SAMPLE
    read = read_rows(path, _FIELDS, content.columns, content.time_unit)
    return [Observation(**row) for row in read.rows], read.bad_rows


def recording_of(observations: Sequence[Observation]) -> Recording:
    """A recording of observations in any order. Raises ValueError if there are none."""
    if not observations:
        raise ValueError("there is no usable row")
    rows = sorted(observations, key=lambda o: (o.measurement_id, o.lane, o.observed_at))
    lanes = sorted({(row.measurement_id, row.lane) for row in rows})
    sites = sorted({measurement_id for measurement_id, _ in lanes})
    site_number = {name: number for number, name in enumerate(sites)}
    lane_number = {lane: number for number, lane in enumerate(lanes)}
    site_of_lane = np.array([site_number[name] for name, _ in lanes], np.int64)
    site_lanes = np.bincount(site_of_lane, minlength=len(sites)).astype(np.int64)
    lane_of_row = np.array([lane_number[row.measurement_id, row.lane] for row in rows], np.int64)
    row_counts = np.bincount(lane_of_row, minlength=len(lanes)).astype(np.int64)
    first_rows = np.cumsum(row_counts) - row_counts
    heads = [rows[first] for first in first_rows.tolist()]
    return Recording(
        site_names=tuple(sites),
        first_lanes=np.cumsum(site_lanes) - site_lanes,
        site_lanes=site_lanes,
        lane_names=tuple(lane for _, lane in lanes),
        site_of_lane=site_of_lane,
        num_lanes=site_lanes[site_of_lane].astype(np.int32),
        latitudes=np.array([row.latitude for row in heads], np.float64),
        longitudes=np.array([row.longitude for row in heads], np.float64),
        first_rows=first_rows,
        row_counts=row_counts,
        lane_of_row=lane_of_row,
        times_us=np.array([row.observed_at for row in rows], np.int64),
        periods_s=np.array([row.period_s for row in rows], np.int32),
        accuracies_percent=np.array([row.accuracy_percent for row in rows], np.int32),
        flows_vehicles_per_hour=np.array([row.flow_vehicles_per_hour for row in rows], np.int32),
        speeds_km_per_hour=np.array([row.speed_km_per_hour for row in rows], np.float64),
    )
