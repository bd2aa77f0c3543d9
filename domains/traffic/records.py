"""The records of a load: site, lane and second of each record, and its values.

Even records are flows, odd ones speeds, two for every lane.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.domain import DomainSpec
from schemas.records import (
    EVENT_MS,
    KEY,
    Int64s,
    NameTable,
    Part,
    RecordedTimes,
    Setup,
    Values,
    probe_time_ms,
)

from .content import Content
from .key_distribution import Places, key_distribution_of
from .recording import Recording, read_observations, recording_of

REPORT_S = 1  # of event time: every lane of a site reports its flow and its speed once in it


class Records:
    """See schemas/records.py."""

    turn = ("flow", "speed")

    def __init__(self, setup: Setup) -> None:
        assert isinstance(setup.content, Content)
        observations, self.bad_rows = read_observations(setup.content, setup.folder)
        self.recording = recording_of(observations)
        self.sites = site_names(self.recording)
        self.key_distribution = key_distribution_of(self.recording, setup.content, setup.seed)
        self._setup = setup
        self._lanes = lane_names(self.recording, setup.content)

    def recorded_times(self) -> RecordedTimes:
        recording = self.recording
        return RecordedTimes(recording.times_us[recording.by_time], recording.period_us)

    def keys(self, name: str) -> NameTable:  # noqa: ARG002
        return self.sites

    def values(self, part: Part) -> Values:
        """See Records. row: of the recording; source: its lane there; lane: number of its name."""
        observed_us = part.due_us
        if not self._setup.replays:
            observed_us = np.full(len(part.due_us), part.event_second * 1_000_000, np.int64)
        places, rows = self._places(part)
        return {
            KEY: places.site,
            EVENT_MS: np.add(part.load_start_ms, observed_us // 1000),
            "lane": places.lane,
            "num_lanes": places.num_lanes,
            "source": places.source,
            "row": rows,
        }

    def columns(self, name: str, values: Values) -> Mapping[str, Any]:
        recording, rows = self.recording, values["row"]
        source = pa.array(values["source"])
        columns = {
            "lane": self._lanes.names(values["lane"]),
            "num_lanes": values["num_lanes"],
            "latitude": pa.array(recording.latitudes).take(source),
            "longitude": pa.array(recording.longitudes).take(source),
            "period_s": recording.periods_s[rows],
            "accuracy_percent": recording.accuracies_percent[rows],
        }
        if name == "flow":
            return columns | {"flow_vehicles_per_hour": recording.flows_vehicles_per_hour[rows]}
        return columns | {"speed_km_per_hour": recording.speeds_km_per_hour[rows]}

    def probe_set(self, number: int, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """Flow and speed of a separate site with one lane, for a complete window of every stage."""
        observation = {
            "measurement_id": f"probe-{number}",
            "lane": "lane1",
            "num_lanes": 1,
            "latitude": 51.44443,
            "longitude": 5.42692,
            "period_s": 60,
            "accuracy_percent": 100,
        }
        result: list[tuple[str, dict[str, Any]]] = []
        for observed_ms in probe_times_ms(self._setup.domain, number, now_ms):
            observed = observation | {"observed_at": observed_ms}
            result.append(("flow", observed | {"flow_vehicles_per_hour": 600}))
            result.append(("speed", observed | {"speed_km_per_hour": 100.0}))
        return result

    def _places(self, part: Part) -> tuple[Places, Int64s]:
        """Lanes of the records, and the row of the recording that each one uses."""
        recording, content = self.recording, self._setup.content
        if self._setup.replays:
            number, copy = np.divmod(part.sequences // 2, content.copies)
            rows = recording.by_time[number % len(recording.by_time)]
            source = recording.lane_of_row[rows]
            site = copy * len(recording.site_names) + recording.site_of_lane[source]
            return Places(source, site, source, recording.num_lanes[source]), rows
        positions = (part.sequences - part.event_first) // 2
        places = self.key_distribution.places(part.event_second, part.event_records, positions)
        step = part.event_second % recording.row_counts[places.source]
        return places, recording.first_rows[places.source] + step


def site_names(recording: Recording) -> NameTable:
    """Names of sites over all copies: those of the recording, then again with a suffix."""
    sites = recording.site_names

    def name_of(number: int) -> str:
        copy, site = divmod(number, len(sites))
        return sites[site] if copy == 0 else f"{sites[site]}#{copy:04d}"

    return NameTable(name_of)


def lane_names(recording: Recording, content: Content) -> NameTable:
    """Names of lanes: those of the recording if it defines the lanes, else lane1, lane2, …"""
    recorded = content.lanes_per_site is None and content.keys.distribution == "data"
    if recorded:
        last = len(recording.lane_names) - 1
        return NameTable(lambda number: recording.lane_names[min(number, last)])
    return NameTable(lambda number: f"lane{number + 1}")


def probe_times_ms(domain: DomainSpec, number: int, now_ms: int) -> range:
    """Event times of a probe set, one per second over the longest window. Windows that slide by a
    second are those before now, because any seconds fill them."""
    windows = [stage.window for stage in domain.stages if stage.window]
    longest_s = max((window.size_s for window in windows), default=REPORT_S)
    if all(window.slide_s == REPORT_S for window in windows):
        end_ms = (now_ms // 1000 + 1) * 1000
    else:
        end_ms = probe_time_ms(domain, number, now_ms)
    return range(end_ms - 1000 * longest_s, end_ms, 1000 * REPORT_S)
