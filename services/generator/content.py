"""What the records say: which observation record k of a load is. Pure.

One source minute becomes one second. A second that holds n records holds n // 2 lanes: whole
copies of the sample's sites, then, of the next copy, sites chosen so that their lanes fill the
rest exactly. Each lane gives two records, its flow and then its speed, lane after lane, site after
site. So every site of a second is there with every lane, and every window can be complete.

When n is odd, one record is left over: the flow of one more 1-lane site, whose speed never comes.
Its windows stay incomplete; a workload that wants none takes an even number of records per second.

The first copy of a site has its own id, later ones a suffix: `SITE#0001`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from services.generator.sample import Sample
from services.generator.shapes import Int64s

Kind = Literal["flow", "speed"]
KINDS: tuple[Kind, Kind] = ("flow", "speed")  # of the even and of the odd records of a second


@dataclass(frozen=True)
class Layout:
    """The lanes of a second with a given number of records, in order of their records.

    Record i of the second belongs to lane i // 2. source_lanes: index of each lane in the sample;
    measurement_ids, lanes: Arrow strings of the same length; keys: UTF-8 of measurement_ids.
    """

    records: int
    source_lanes: Int64s
    measurement_ids: pa.StringArray
    lanes: pa.StringArray
    keys: tuple[bytes, ...]


@dataclass(frozen=True)
class Stamps:
    """What differs from record to record of a batch, and what all of them share.

    minute: source minute. observed_at_ms: event time of all, epoch milliseconds. sequences and
    scheduled_at_us (epoch microseconds): one per record.
    """

    run_id: str
    minute: int
    observed_at_ms: int
    sequences: Int64s
    scheduled_at_us: Int64s


def fill_with_sites(site_lanes: Sequence[int], lanes: int) -> tuple[int, ...]:
    """Indexes of sites, ascending, whose lanes sum up to `lanes` exactly.

    Larger sites are preferred as the sample has them first, so a slightly different number of
    lanes changes 1-lane sites only. Raises ValueError when no such choice is found.
    """
    chosen = []
    for site, width in enumerate(site_lanes):
        if width <= lanes:
            chosen.append(site)
            lanes -= width
    if lanes:
        raise ValueError(f"sites of {list(site_lanes)} lanes leave {lanes} lanes unfilled")
    return tuple(chosen)


def lay_out(sample: Sample, records: int) -> Layout:
    """The lanes of a second with `records` records."""
    widths = sample.site_lanes
    first_lanes = np.concatenate(([0], np.cumsum(widths)[:-1]))
    copies, rest = divmod(records // 2, sum(widths))
    sites = list(fill_with_sites(widths, rest))
    if records % 2:
        sites.append(_spare_site(widths, sites))
    partial = [
        np.arange(first_lanes[site], first_lanes[site] + widths[site], dtype=np.int64)
        for site in sites
    ]
    whole = np.tile(np.arange(sum(widths), dtype=np.int64), copies)
    source = np.concatenate((whole, *partial))
    copy_of = np.arange(len(source)) // sum(widths)
    ids = [
        _copy_id(sample.measurement_ids[lane], copy)
        for lane, copy in zip(source.tolist(), copy_of.tolist(), strict=True)
    ]
    lanes = pa.array(sample.lanes, pa.string()).take(pa.array(source))
    keys = tuple(name.encode() for name in ids)
    return Layout(records, source, pa.array(ids, pa.string()), lanes, keys)


def _spare_site(widths: Sequence[int], taken: Sequence[int]) -> int:
    for site, width in enumerate(widths):
        if width == 1 and site not in taken:
            return site
    raise ValueError("the sample has no 1-lane site left for an odd record")


def _copy_id(measurement_id: str, copy: int) -> str:
    return measurement_id if copy == 0 else f"{measurement_id}#{copy:04d}"


def observations(
    sample: Sample, layout: Layout, kind: Kind, lanes: slice, stamps: Stamps
) -> pa.RecordBatch:
    """The records of one kind of adjacent lanes of a second, in the columns of their schema."""
    source = layout.source_lanes[lanes]
    count = len(source)
    minute = stamps.minute
    if kind == "flow":
        value = pa.array(sample.flows_vehicles_per_hour[minute, source], pa.int32())
    else:
        value = pa.array(sample.speeds_km_per_hour[minute, source], pa.float64())
    observed = np.full(count, stamps.observed_at_ms, dtype=np.int64)
    return pa.RecordBatch.from_pydict(
        {
            "measurement_id": layout.measurement_ids[lanes],
            "lane": layout.lanes[lanes],
            "num_lanes": pa.array(sample.num_lanes[source], pa.int32()),
            "latitude": pa.array(sample.latitudes[source], pa.float64()),
            "longitude": pa.array(sample.longitudes[source], pa.float64()),
            "observed_at": pa.array(observed, pa.timestamp("ms")),
            "period_s": pa.array(sample.periods_s[minute, source], pa.int32()),
            "accuracy_percent": pa.array(sample.accuracies_percent[minute, source], pa.int32()),
            VALUE_COLUMNS[kind]: value,
            "sequence": pa.array(stamps.sequences, pa.int64()),
            "run_id": pa.array([stamps.run_id] * count, pa.string()),
            "scheduled_at": pa.array(stamps.scheduled_at_us, pa.timestamp("us")),
        }
    )


VALUE_COLUMNS: dict[Kind, str] = {
    "flow": "flow_vehicles_per_hour",
    "speed": "speed_km_per_hour",
}
