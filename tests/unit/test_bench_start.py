"""Steps of a start, from the command's output and the bus."""

import pytest

from tests.benchmarks.start import ratios_of, steps_of

pytestmark = pytest.mark.unit

BEGAN_S = 1_700_000_000.0


def event(name: str, after_s: float, phase: str = "", pipeline: str = "") -> dict[str, object]:
    at_ms = str(int(1000 * (BEGAN_S + after_s)))
    return {"event": name, "phase": phase, "pipeline": pipeline, "at_ms": at_ms}


def test_each_step_has_its_time_since_the_command_and_the_last_pipeline_counts():
    lines = [(0.4, "starting kafka"), (2.5, "kafka is ready after 2.0 s"), (9.0, "warm-up")]
    heard = [
        event("run_requested", 4.25),
        event("ready", 5.0),
        event("ready", 14.0, pipeline="a"),
        event("ready", 15.5, pipeline="b"),
        event("phase_started", 12.0, phase="prepare"),
        event("first_outputs", 16.5),
        event("phase_started", 17.0, phase="warm_up"),
        event("phase_started", 37.0, phase="measure"),
        event("concluded", 50.125),
    ]
    assert steps_of(lines, heard, BEGAN_S, 53.0) == {
        "broker": 2.5,
        "asked": 4.25,
        "pipeline": 15.5,
        "outputs": 16.5,
        "load": 17.0,
        "measured": 37.0,
        "concluded": 50.125,
        "reported": 53.0,
    }


def test_a_ratio_above_one_is_a_step_that_archives_make_shorter():
    figures = {"with_archives_load_s": 12.0, "without_load_s": 18.0, "without_asked_s": 4.0}
    assert ratios_of(figures) == {"load": 1.5}
