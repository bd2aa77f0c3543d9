"""Reports of changes, with other changes at the same time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.changes import series as histories_of
from analysis.changes.causes import likely_causes
from analysis.changes.finding import find_changes, is_known
from analysis.changes.series import METRICS, Figure, Point, RunFacts, Series, steady_ones
from analysis.changes.week import without_season
from analysis.changes.words import change_sentence
from tests.traffic import STAGES
from tests.unit.analysis.histories import a_point, a_series
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

LOW = [100.0, 102.0, 98.0, 101.0, 99.0, 100.0, 103.0, 97.0, 100.0, 101.0]
HIGH = [value + 50 for value in LOW]


def test_a_change_is_told_with_both_levels_and_its_place() -> None:
    (change,) = find_changes([a_series(LOW), a_series(LOW + HIGH, "sliding")])
    detail = change.detail()
    assert (detail["stage"], detail["first_run_after"]) == ("sliding", "run-10")
    assert detail["last_run_before"] == "run-09"
    assert detail["before"] == {"median": 100.0, "low": 97.0, "high": 103.0, "runs": 10}
    assert detail["after"] == {"median": 150.0, "low": 147.0, "high": 153.0, "runs": 10}
    assert (detail["change"], detail["worse"]) == (0.5, True)


def test_a_change_that_was_told_is_known_also_when_it_moved_by_a_run() -> None:
    (change,) = find_changes([a_series(LOW + HIGH)])
    told = change.detail()
    assert is_known(change, [told])
    assert is_known(change, [told | {"first_run_after": "run-12"}])
    assert not is_known(change, [told | {"first_run_after": "run-13"}])
    assert not is_known(change, [told | {"stage": "parse"}])


def test_a_change_stays_known_when_runs_that_were_not_steady_no_longer_count() -> None:
    whole = a_series(LOW + HIGH)
    (change,) = find_changes([whole])
    told = change.detail()
    steady = tuple(point for point in whole.points if point.run_id != told["first_run_after"])
    (again,) = find_changes([replace(whole, points=steady)])
    assert again.first_run_id == "run-11"
    assert is_known(again, [told])
    assert not is_known(again, [told | {"first_run_after": "run-07"}])


def test_a_changed_setting_of_the_pipeline_is_the_likeliest_cause() -> None:
    before = a_point(0, 1.0, packages={"pyspark": "4.3.0"}, host="a", tidegauge="1")
    after = a_point(1, 2.0, packages={"pyspark": "4.4.0"}, host="a", tidegauge="2")
    after.request["pipelines"][0]["trigger_interval_ms"] = 1000
    assert likely_causes([before], [after], "spark-realtime") == [
        "pipelines.trigger_interval_ms: 0 → 1000",
        "packages.pyspark: 4.3.0 → 4.4.0",
        "tidegauge: 1 → 2",
    ]


def test_settings_of_kept_pipelines_are_compared_too() -> None:
    before, after = a_point(0, 1.0), a_point(1, 2.0, pipelines_kept=True)
    after.request["pipelines"][0]["trigger_interval_ms"] = 1000
    assert likely_causes([before], [after], "spark-realtime") == [
        "pipelines.trigger_interval_ms: 0 → 1000",
        "pipelines_kept: – → True",
    ]


def test_partitions_and_the_version_of_the_engine_are_causes() -> None:
    before = replace(a_point(0, 1.0), engine_version="2.1")
    after = replace(a_point(1, 2.0), engine_version="2.2")
    after.request["workload"]["partitions"] = 8
    assert likely_causes([before], [after], "spark-realtime") == [
        "engine_version: 2.1 → 2.2",
        "partitions: – → 8",
    ]


def test_many_differences_are_counted() -> None:
    before, after = a_point(0, 1.0), a_point(1, 2.0, packages={f"p{n}": "1" for n in range(60)})
    causes = likely_causes([before], [after], "spark-realtime")
    assert (len(causes), causes[-1]) == (51, "10 further differences")


def test_a_machine_that_others_used_more_is_a_cause() -> None:
    before = [a_point(n, 1.0, others=0.1) for n in range(3)]
    after = [a_point(n, 1.0, others=1.4) for n in range(3, 6)]
    causes = likely_causes(before, after, "spark-realtime")
    assert causes == ["CPU use by other processes: 0.1 → 1.4 cores"]


@pytest.mark.parametrize(
    ("took_us", "causes"),
    [
        (
            345.0,
            ["machine: slower; CPU time of the generator per record 270 → 345 µs (+28%)"],
        ),
        (
            200.0,
            ["machine: faster; CPU time of the generator per record 270 → 200 µs (-26%)"],
        ),
        (290.0, []),
        (None, []),
    ],
)
def test_a_machine_whose_speed_changed_is_a_cause(took_us: float | None, causes: list[str]) -> None:
    before = [replace(a_point(n, 1.0), generator_us=270.0) for n in range(3)]
    after = [replace(a_point(n, 1.3), generator_us=took_us) for n in range(3, 6)]
    assert likely_causes(before, after, "spark-realtime") == causes


def test_another_revision_of_the_generator_tells_nothing_of_the_machine() -> None:
    before, after = a_point(0, 1.0, tidegauge="1"), a_point(1, 1.3, tidegauge="2")
    sides = [replace(before, generator_us=270.0)], [replace(after, generator_us=345.0)]
    assert likely_causes(*sides, "spark-realtime") == ["tidegauge: 1 → 2"]


@pytest.mark.parametrize(
    "workload", [{"transport": "udp"}, {"search": {"policy": "x"}}, {"sustainable_share": 0.9}]
)
def test_other_work_of_the_generator_tells_nothing_of_the_machine(workload: dict[str, Any]) -> None:
    before, after = a_point(0, 1.0), a_point(1, 1.3)
    after.request["workload"] |= workload
    sides = [replace(before, generator_us=270.0)], [replace(after, generator_us=345.0)]
    assert likely_causes(*sides, "spark-realtime") == []


def test_where_nothing_changed_no_cause_is_made_up() -> None:
    assert likely_causes([a_point(0, 1.0)], [a_point(1, 2.0)], "spark-realtime") == []


def rows(*run_ids: str) -> list[dict[str, Any]]:
    figures = {"pipeline": "spark-realtime", "stage": "join", "middle_ms": 5, "p99_ms": 9}
    return [{"run_id": run_id, **figures} for run_id in run_ids]


def with_rate(rate: float) -> dict[str, Any]:
    request = a_request().model_dump(mode="json")
    request["workload"]["load"]["rate_per_second"] = rate
    return request


def assemble(
    requests: dict[str, dict[str, Any]],
    rows: list[dict[str, Any]],
    usage: dict[str, dict[str, float]],
) -> list[Series]:
    """usage: of runs, by run."""
    runs = [RunFacts(name, request, **usage.get(name, {})) for name, request in requests.items()]
    figures = [
        Figure(row["run_id"], row["pipeline"], row["stage"], metric, row[metric])
        for row in rows
        for metric in METRICS
        if metric in row
    ]
    return histories_of.assemble(runs, figures)


def test_runs_at_a_share_of_the_rate_found_are_one_series() -> None:
    requests = {name: with_rate(rate) for name, rate in (("a", 36_000), ("b", 36_100))}
    for request in requests.values():
        request["workload"]["sustainable_share"] = 0.9
    found = assemble(requests, rows("a", "b"), {})
    assert [(s.workload, len(s.points)) for s in found] == [("latency", 2)] * 2


def test_latencies_of_searches_are_no_history() -> None:
    """Each is measured at the rate found."""
    requests = {"a": with_rate(400)}
    requests["a"]["workload"]["search"] = {"policy": "steady-latency"}
    found = {"run_id": "a", "pipeline": "spark-realtime", "stage": "join"}
    figures = [*rows("a"), found | {"sustainable_rate_per_second": 9_000.0}]
    assert [s.metric for s in assemble(requests, figures, {})] == ["sustainable_rate_per_second"]


def test_runs_with_another_load_are_another_series() -> None:
    requests = {"a": with_rate(400), "b": with_rate(900), "c": with_rate(400)}
    found = assemble(requests, rows("a", "b", "c"), {"a": {"others_cores": 0.5, "generator_us": 9}})
    ids = {(s.workload, s.metric): [p.run_id for p in s.points] for s in found}
    assert ids == {
        ("latency at 400/s", "middle_ms"): ["a", "c"],
        ("latency at 400/s", "p99_ms"): ["a", "c"],
        ("latency at 900/s", "middle_ms"): ["b"],
        ("latency at 900/s", "p99_ms"): ["b"],
    }
    point = found[0].points[0]
    assert (point.others_cores, point.generator_us) == (0.5, 9)


def test_other_settings_of_the_pipeline_stay_in_the_series() -> None:
    other = with_rate(400)
    other["pipelines"][0]["trigger_interval_ms"] = 1000
    assert len(assemble({"a": with_rate(400), "b": other}, rows("a", "b"), {})) == 2


def test_runs_of_another_domain_are_another_series_and_named_so() -> None:
    other = with_rate(400)
    other["domain"]["name"] = "clicks"
    found = assemble({"a": with_rate(400), "b": other}, rows("a", "b"), {})
    names = ["latency at 400/s", "latency at 400/s of clicks"]
    assert [series.workload for series in found[::2]] == names


def test_runs_with_other_windows_or_kills_are_another_series() -> None:
    windows, kills = with_rate(400), with_rate(400)
    windows["domain"]["stages"][STAGES.index("tumbling")]["window"]["size_s"] = 60
    kills["workload"]["kills"] = [{"target": "broker", "at_s": 5}]
    requests = {"a": with_rate(400), "b": windows, "c": kills}
    found = assemble(requests, rows("a", "b", "c"), {})
    assert [[point.run_id for point in series.points] for series in found[::2]] == [
        ["a"],
        ["b"],
        ["c"],
    ]


def a_search(guess: float, policy: str = "steady-latency") -> dict[str, Any]:
    request = with_rate(guess)
    request["workload"] |= {"name": "sustainable-throughput", "search": {"policy": policy}}
    return request


def rates(*run_ids: str) -> list[dict[str, Any]]:
    figures = {"pipeline": "spark-realtime", "stage": "parse, join"}
    return [
        {"run_id": run_id, **figures, "sustainable_rate_per_second": 5000.0} for run_id in run_ids
    ]


def test_sustainable_rates_are_one_series_wherever_their_searches_began() -> None:
    requests = {"a": a_search(400), "b": a_search(9000), "c": a_search(400, "queue-by-time")}
    found = assemble(requests, rates("a", "b", "c"), {})
    told = [(series.key, [point.run_id for point in series.points]) for series in found]
    key = ("sustainable-throughput", "spark-realtime", "parse, join", "sustainable_rate_per_second")
    assert told == [(key, ["a", "b"]), (key, ["c"])]


def test_a_sustainable_rate_that_falls_is_worse() -> None:
    rates_per_second = [40 * value for value in HIGH + LOW]
    series = replace(a_series(rates_per_second), metric="sustainable_rate_per_second")
    (change,) = find_changes([series])
    assert (change.detail()["worse"], change.detail()["after"]["median"]) == (True, 4000.0)
    assert "the sustainable rate fell from 6000 to 4000 records/s (-33%) with run run-10" in (
        change_sentence(change.detail())
    )


def test_the_console_says_it_in_a_sentence() -> None:
    (change,) = find_changes([a_series(LOW + HIGH)])
    assert change_sentence(change.detail()) == (
        "join of spark-realtime, latency at 400/s: the 99th percentile of latency rose from 100 to"
        " 150 ms (+50%) with run run-10 (10 runs before, 10 since); no recorded setting changed."
    )


def test_only_so_many_of_the_newest_runs_are_looked_at() -> None:
    series: Series = a_series(LOW + HIGH + HIGH * 20)
    assert find_changes([series]) == []
    assert len(find_changes([replace(series, points=series.points[:100])])) == 1


HOUR_MS = 3_600_000


def each_hour(days: int, value: Callable[[int, int], float]) -> list[Point]:
    """A run every hour; value: by day and hour."""
    return [
        replace(a_point(24 * day + hour, value(day, hour)), at_ms=(24 * day + hour) * HOUR_MS)
        for day in range(days)
        for hour in range(24)
    ]


def test_what_every_evening_adds_is_taken_out() -> None:
    points = each_hour(4, lambda _day, hour: 130.0 if hour >= 20 else 100.0)
    assert without_season(points) == [100.0] * 96


def test_a_change_that_stays_is_no_season() -> None:
    points = each_hour(4, lambda day, _hour: 110.0 if day >= 2 else 100.0)
    assert without_season(points) == [100.0] * 48 + [110.0] * 48


def test_two_days_say_nothing_about_evenings() -> None:
    points = each_hour(2, lambda _day, hour: 130.0 if hour >= 20 else 100.0)
    assert without_season(points) == [point.value for point in points]


def test_a_run_at_another_time_of_day_changes_nothing_for_the_others() -> None:
    points = [
        point
        for point in each_hour(4, lambda _day, hour: 130.0 if hour >= 20 else 100.0)
        if point.at_ms // HOUR_MS % 24 >= 8 or point.at_ms == 3 * HOUR_MS
    ]
    assert without_season(points) == [100.0] * len(points)


def test_the_season_of_many_runs_a_day_is_that_of_all_days() -> None:
    """Two days of a run each quarter of an hour are within the runs that are examined."""
    points = [
        replace(a_point(n, 130.0 if n % 96 >= 80 else 100.0), at_ms=n * HOUR_MS // 4)
        for n in range(6 * 96)
    ]
    assert find_changes([replace(a_series([]), points=tuple(points))]) == []


def test_runs_that_were_not_steady_do_not_count_unless_most_were_not() -> None:
    points = [
        replace(a_point(n, 5.0), is_steady=known)
        for n, known in enumerate((True, None, False, True))
    ]
    assert [point.run_id for point in steady_ones(points)] == ["run-00", "run-01", "run-03"]
    moving = [replace(point, is_steady=False) for point in points[:3]]
    assert steady_ones([*moving, points[3]]) == (*moving, points[3])


def test_a_tenth_of_a_typical_latency_of_some_milliseconds_is_a_change() -> None:
    series = replace(a_series([3.1, 3.0] * 6 + [3.4, 3.3] * 6), metric="middle_ms")
    (change,) = find_changes([series])
    assert (change.first_run_id, round(change.detail()["change"], 2)) == ("run-12", 0.1)
    assert find_changes([replace(series, metric="p99_ms")]) == []
