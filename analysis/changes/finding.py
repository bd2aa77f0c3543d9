"""Describes changes: levels before and after, place, and likely causes. Pure."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.change_points import ChangePointConfig, change_points
from analysis.changes.causes import likely_causes, without_machine
from analysis.changes.series import HIGHER_IS_BETTER, LATENCIES, TYPICAL, Point, Series
from analysis.changes.week import without_season, without_week
from analysis.changes.words import ChangeDetail, Level

NEAR_RUNS = 2  # tolerance for the place of a change when more runs are known
# Minimum difference of medians, in the metric's unit. Timestamps are whole milliseconds, whose
# rounding cancels only in means.
LEAST_STEPS = {TYPICAL: 0.1}


@dataclass(frozen=True)
class FoundChange:
    """One change point. before, after: the runs of the level before and after, oldest first, with
    their adjusted values."""

    series: Series
    before: tuple[Point, ...]
    after: tuple[Point, ...]
    p_value: float

    @property
    def first_run_id(self) -> str:
        """The first run after the change, which identifies it."""
        return self.after[0].run_id

    def detail(self) -> ChangeDetail:
        """Detail of the conclusion `change_point`."""
        old, new = _level(self.before), _level(self.after)
        rose = new["median"] > old["median"]
        return {
            "workload": self.series.workload,
            "pipeline": self.series.pipeline,
            "stage": self.series.stage,
            "metric": self.series.metric,
            "last_run_before": self.before[-1].run_id,
            "first_run_after": self.first_run_id,
            "before": old,
            "after": new,
            "change": new["median"] / old["median"] - 1 if old["median"] else None,
            "worse": rose != (self.series.metric in HIGHER_IS_BETTER),
            "p_value": self.p_value,
            "likely_causes": likely_causes(self.before, self.after, self.series.pipeline),
        }


def find_changes(
    histories: Iterable[Series], config: ChangePointConfig | None = None
) -> list[FoundChange]:
    """The changes of all series, in the order of the series."""
    config = config or ChangePointConfig()
    result = []
    for series in histories:
        # The season and the machine's pace are those of all runs.
        points = adjusted(series)[-config.most_runs :]
        step = LEAST_STEPS.get(series.metric, config.least_step)
        values = [point.value for point in points]
        splits = change_points(values, replace(config, least_step=step))
        edges = [0, *(split.index for split in splits), len(points)]
        for number, split in enumerate(splits):
            before = points[edges[number] : edges[number + 1]]
            after = points[edges[number + 1] : edges[number + 2]]
            result.append(FoundChange(series, before, after, split.p_value))
    return result


def all_changes(
    histories: Iterable[Series], published: Sequence[ChangeDetail]
) -> list[tuple[FoundChange, bool]]:
    """The changes of all series, oldest first, and whether each is new. published: the details of
    those published before."""
    changes = sorted(find_changes(histories), key=lambda change: change.first_run_id)
    return [(change, not is_known(change, published)) for change in changes]


def adjusted(series: Series) -> tuple[Point, ...]:
    """The runs with values adjusted for the day of the week and the time of day, and latencies for
    the machine's pace."""
    points = series.points
    if series.metric in LATENCIES:
        points = _with(points, without_machine(points))
    values, is_known = without_week(points)
    points = _with(points, values)
    return points if is_known else _with(points, without_season(points))


def _with(points: Sequence[Point], values: Sequence[float]) -> tuple[Point, ...]:
    return tuple(replace(each, value=value) for each, value in zip(points, values, strict=True))


def is_known(change: FoundChange, known: Sequence[ChangeDetail]) -> bool:
    """Whether this change of this series, within NEAR_RUNS, is among the details published before.
    Run ids are compared by their order, which is that of time: the run of a published change is no
    longer in the series if it was not steady and only steady runs count now."""
    runs = [point.run_id for point in change.series.points]
    place = runs.index(change.first_run_id)
    near = runs[max(0, place - NEAR_RUNS) : place + NEAR_RUNS + 1]
    return any(
        change.series.key == (each["workload"], each["pipeline"], each["stage"], each["metric"])
        and min(near) <= each["first_run_after"] <= max(near)
        for each in known
    )


def _level(points: Sequence[Point]) -> Level:
    values = sorted(point.value for point in points)
    return {
        "median": statistics.median(values),
        "low": values[0],
        "high": values[-1],
        "runs": len(values),
    }
