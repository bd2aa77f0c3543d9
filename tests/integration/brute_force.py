"""The expected results of a calibration run, computed by scanning all records of its topics.

Written from the definitions, independently of the evaluator. Stages ingest, parse and tumbling.
"""

import time
from collections import Counter, defaultdict
from contextlib import suppress

from schemas import catalogue, codec
from tests.integration.service_process import Reader
from tests.traffic import INPUTS, RELEASED

FLOW, SPEED = "flow_vehicles_per_hour", "speed_km_per_hour"
STAGES = ("ingest", "parse", "tumbling")


def appended_ms(message):
    """The LogAppendTime of a record."""
    return message.timestamp()[1]


def read_whole(settings, topic, ends, time_of=appended_ms):
    """(time, value) of every record before the given ends with a known header."""
    reader, found = Reader(settings, topic), []
    deadline = time.monotonic() + 90
    try:
        while len(reader.messages) < sum(ends):
            assert time.monotonic() < deadline, f"{topic} was not read in time"
            reader.read()
        for message in reader.messages:
            with suppress(codec.DecodeError):  # other tests leave undecodable values
                RELEASED.identify(message.value())
                found.append((time_of(message), message.value()))
    finally:
        reader.close()
    return found


def window_of(fields):
    return fields["measurement_id"], fields["observed_at"] // 1000 * 1000


def expectations(settings, run_id, ends, time_of=appended_ms):
    """By stage: key → (content, time of the latest input, latest scheduled time)."""
    due = {stage: {} for stage in STAGES}
    windows = defaultdict(list)
    for topic in INPUTS:
        for time_ms, value in read_whole(settings, topic, ends[topic], time_of):
            fields = RELEASED.decode(value)[1]
            if fields["run_id"] != run_id:
                continue
            key = fields["sequence"]
            parsed = {FLOW: None, SPEED: None, **fields}
            del parsed["scheduled_at"]
            due["ingest"][key] = (value, time_ms, fields["scheduled_at"])
            due["parse"][key] = (parsed, time_ms, fields["scheduled_at"])
            windows[window_of(fields)].append((time_ms, fields))
    for (site, start_ms), members in windows.items():
        flows = [fields[FLOW] for _, fields in members if FLOW in fields]
        speeds = [fields[SPEED] for _, fields in members if SPEED in fields]
        if len(flows) == len(speeds) == members[0][1]["num_lanes"]:
            latest_ms = max(time_ms for time_ms, _ in members)
            content = (len(flows), sum(flows), round(sum(speeds) / len(speeds), 9))
            scheduled_us = max(fields["scheduled_at"] for _, fields in members)
            due["tumbling"][site, start_ms] = (content, latest_ms, scheduled_us)
    return due


def key_and_content(stage, value):
    fields = RELEASED.decode(value)[1]
    if stage == "ingest":
        return fields["run_id"], fields["sequence"], value
    if stage == "parse":
        return fields["run_id"], fields["sequence"], fields
    flow, speed = "accumulated_flow_vehicles_per_hour", "average_speed_km_per_hour"
    content = (fields["lanes"], fields[flow], round(fields[speed], 9))
    return fields["run_id"], (fields["measurement_id"], fields["window_start"]), content


def handed_to(settings, run_id, pipeline):
    """A function of an input record: when the pipeline was handed it, or a later one of its
    partition, by the events of its proxy."""
    reader, times = Reader(settings, catalogue.FETCHES), defaultdict(list)
    for event in reader.everything(run_id):
        if event["pipeline"] == pipeline:
            pairs = zip(event["handed_ms"], event["last_offsets"], strict=True)
            times[event["topic"], event["partition"]] += pairs
    reader.close()

    def time_of(message):
        here = times[message.topic(), message.partition()]
        return min((ms for ms, last in here if last >= message.offset()), default=0)

    return time_of


def judged(
    settings, run_id, pipeline, deadline_ms, ends, measured_us=(0, 1 << 62), time_of=appended_ms
):
    """Counts by (stage, verdict), and of `latest`, or from another time of inputs, by (stage,
    latency in ms), of records scheduled in a period (µs, start inclusive, end exclusive)."""
    verdicts, latencies = Counter(), Counter()
    for stage, due in expectations(settings, run_id, ends, time_of).items():
        seen = set()
        topic = catalogue.output_topic(pipeline, stage)
        for output_ms, value in read_whole(settings, topic, ends[topic]):
            of_run, key, content = key_and_content(stage, value)
            if of_run != run_id:
                continue
            if key in due and not measured_us[0] <= due[key][2] < measured_us[1]:
                continue
            if key not in due:
                verdicts[stage, "unexpected"] += 1
            elif key in seen:
                verdicts[stage, "duplicate"] += 1
            else:
                seen.add(key)
                expected, latest_ms, _ = due[key]
                latencies[stage, output_ms - latest_ms] += 1
                late = output_ms - latest_ms > deadline_ms
                verdict = "wrong" if content != expected else "late" if late else "exact"
                verdicts[stage, verdict] += 1
        measured = {key for key, one in due.items() if measured_us[0] <= one[2] < measured_us[1]}
        verdicts[stage, "missing"] += len(measured - seen)
    return +verdicts, latencies
