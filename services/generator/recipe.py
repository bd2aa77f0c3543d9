"""Everything that determines the records of a load, and the rows made from it. Pure.

The rows of a load are a function of the recipe, the load's start and the sequence alone.
"""

from dataclasses import dataclass

import numpy as np

from schemas import faults as fault_rules
from schemas.faults import DUPLICATE, LATE, NONE
from schemas.protocol import RunRequest
from services.generator.content import Rows, Wording
from services.generator.curves import SECOND_US
from services.generator.layouts import Layout, Places, layout_of
from services.generator.names import Names, lane_names, site_names
from services.generator.pacing import Slice
from services.generator.recording import Int64s, Recording
from services.generator.shapes import LoadShape, ReplayShape, shape_of
from services.generator.share import Share

MAX_HELD_RECORDS = 1_000_000
EXTRA = -1  # in Rows.second: the second copy of a duplicate, which no second answers for


@dataclass(frozen=True)
class Recipe:
    """A request, its recording, and which share of the load is ours. The names of sites and lanes
    are kept here because making them takes longer than using them."""

    request: RunRequest
    recording: Recording
    shape: LoadShape
    layout: Layout
    share: Share
    sites: Names
    lanes: Names

    @property
    def event_second_us(self) -> int:
        """How long a second of event time lasts, microseconds."""
        return self.request.workload.content.second_ms * 1000

    def wording(self, load_start_ms: int) -> Wording:
        """What turns rows into records."""
        return Wording(self.recording, self.sites, self.lanes, self.request.run_id, load_start_ms)

    def rows(self, part: Slice, load_start_ms: int, end_us: int) -> Rows:
        """The rows of a slice, in the order of their sequence; a duplicate once, a late one with
        the time at which it is really due. end_us: of the load, from its start."""
        sequences = self.share.sequences(part.first, part.end)
        due_us = self.shape.scheduled_us(sequences)
        kinds = np.full(len(sequences), NONE, np.int8)
        observed_us = due_us
        if not isinstance(self.shape, ReplayShape):
            observed_us = np.full(len(sequences), part.event_second * SECOND_US, np.int64)
        places, rows = self._places(part, sequences)
        faults, seed = self.request.workload.faults, self.request.seed
        if faults.any:
            kinds = fault_rules.kinds(faults, seed, sequences)
            late = kinds == LATE
            delays_us = fault_rules.delays_us(faults, seed, sequences)
            due_us = np.where(late, np.minimum(due_us + delays_us, end_us - 1), due_us)
        return Rows(
            sequence=sequences,
            due_us=due_us,
            second=np.full(len(sequences), part.second, np.int32),
            source=places.source,
            row=rows,
            site=places.site,
            lane=places.lane,
            num_lanes=places.num_lanes,
            observed_ms=load_start_ms + observed_us // 1000,
            fault=kinds,
        )

    def _places(self, part: Slice, sequences: Int64s) -> tuple[Places, Int64s]:
        """Where the records of a slice are, and which row of the recording each one tells."""
        recording = self.recording
        if isinstance(self.shape, ReplayShape):
            number, copy = np.divmod(sequences // 2, self.request.workload.content.copies)
            rows = recording.by_time[number % len(recording.by_time)]
            source = recording.lane_of_row[rows]
            site = copy * len(recording.site_names) + recording.site_of_lane[source]
            return Places(source, site, source, recording.num_lanes[source]), rows
        positions = (sequences - part.event_first) // 2
        places = self.layout.places(part.event_second, part.event_records, positions)
        step = part.event_second % recording.row_counts[places.source]
        return places, recording.first_rows[places.source] + step


def recipe_of(request: RunRequest, recording: Recording, share: Share) -> Recipe:
    """The recipe of a run. Raises ValueError with one sentence when it cannot be carried out."""
    workload = request.workload
    load, content, faults = workload.load, workload.content, workload.faults
    if load.shape == "replay":
        times_us = recording.times_us[recording.by_time]
        elapsed_us = ((times_us - times_us[0]) / load.speed).astype(np.int64)
        period_us = max(int(recording.period_us / load.speed), int(elapsed_us[-1]) + 1)
        shape: LoadShape = ReplayShape(elapsed_us, period_us, 2 * content.copies)
    else:
        shape = shape_of(load)
    held = faults.late * load.peak_per_second * faults.late_ms / 1000
    if held > MAX_HELD_RECORDS:
        raise ValueError(
            f"faults.late and late_ms would hold back {held:,.0f} records at a time, "
            f"and at most {MAX_HELD_RECORDS:,} can be held"
        )
    layout = layout_of(recording, content, request.seed)
    sites, lanes = site_names(recording), lane_names(recording, content)
    return Recipe(request, recording, shape, layout, share, sites, lanes)


def sent_rows(rows: Rows) -> Rows:
    """The rows as they are sent: in the order of their times, duplicates twice."""
    twice = rows.fault == DUPLICATE
    if twice.any():
        second = np.where(twice, EXTRA, rows.second).astype(np.int32)
        index = np.repeat(np.arange(len(rows)), 1 + twice)
        copies = np.concatenate(([False], index[1:] == index[:-1]))
        taken = rows.take(index)
        taken.second[copies] = second[index][copies]
        rows = taken
    order = np.argsort(rows.due_us, kind="stable")
    return rows.take(order)
