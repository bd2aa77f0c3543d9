"""Hand-written observations as rows of the inputs, for tests of stage logic."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = 1_767_225_600_000
OBSERVATION = (
    "run_id string, measurement_id string, lane string, num_lanes int, observed_at timestamp, "
    "flow_vehicles_per_hour int, speed_km_per_hour double"
)


def at(second):
    return START + timedelta(seconds=second)


def flow(second, value, lane="lane1", num_lanes=1, site="s", run="r"):
    return (run, site, lane, num_lanes, at(second), value, None)


def speed(second, value, lane="lane1", num_lanes=1, site="s", run="r"):
    return (run, site, lane, num_lanes, at(second), None, value)


def both(second, flow_value, speed_value, **where):
    return [flow(second, flow_value, **where), speed(second, speed_value, **where)]


def within(row):
    """The row with its times in seconds since START."""
    found = row.asDict()
    for name in {"observed_at", "window_start", "window_end"} & set(found):
        found[name] = (found[name].astimezone(UTC) - START).total_seconds()
    return found
