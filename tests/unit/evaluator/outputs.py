"""Inputs and outputs shared by the tests of verdicts and latencies.

Times are milliseconds after START_MS. FLOW was appended at 2100 and SPEED at 2300, both scheduled
at 2000 (the start of the measure phase).
"""

from tests.unit.evaluator.records import MEASURE_MS, START_MS, Output, Reading, Run, joined

FLOW = Reading("flow", START_MS + 2_100, 300, sequence=0)
SPEED = Reading("speed", START_MS + 2_300, 80.0, sequence=1)
TWO_LANES = (
    Reading("flow", START_MS + 2_000, 100, 0, lane="lane1", lanes=2),
    Reading("flow", START_MS + 2_010, 250, 2, lane="lane2", lanes=2),
    Reading("speed", START_MS + 2_100, 60.0, 1, lane="lane1", lanes=2),
    Reading("speed", START_MS + 2_130, 91.0, 3, lane="lane2", lanes=2),
)


def raw(reading, after_ms):
    return Output("ingest", START_MS + after_ms, None, reading.encoded)


def join(after_ms, flow=300, speed=80.0, **changes):
    return Output("join", START_MS + after_ms, joined(flow, speed, **changes))


def tumbling(after_ms, fields):
    return Output("tumbling", START_MS + after_ms, fields)


def sliding(after_ms, fields):
    return Output("sliding", START_MS + after_ms, fields)


def totals_of(*records):
    run = Run()
    run.add(*records)
    run.read_all()
    return run.totals()


def three_seconds(flows, speeds):
    """Seconds 0 to 2 of site a; second n is appended at 2000 + 1000 n (flow) and 100 ms later."""
    for second, (flow, speed) in enumerate(zip(flows, speeds, strict=True)):
        observed_ms, appended_ms = START_MS + 1_000 * second, START_MS + 2_000 + 1_000 * second
        due_us = (MEASURE_MS + 100 * second) * 1_000
        yield Reading("flow", appended_ms, flow, 2 * second, observed_ms, due_us)
        yield Reading("speed", appended_ms + 100, speed, 2 * second + 1, observed_ms, due_us)
