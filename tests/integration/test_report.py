"""The report of a run, read from the tables. A run that ended early is reported as far as it was
measured."""

import json
from collections import Counter
from random import Random

import pytest

from analysis.interleaving import Block
from analysis.intervals import QUARTILES, Seconds
from analysis.intervals import intervals as intervals_of
from schemas import catalogue, protocol
from schemas.events import Concluded, RunRequested
from schemas.percentiles import LEVELS, quantile
from schemas.study import BY_RATE
from services.console.report.build import build_report, build_whole_report
from services.console.report.several import UsageSamples
from services.readmodel import seconds, timelines
from services.runtime.clickhouse import QueryError
from tests.integration.recorded_run import phase_ms, recorded, run_of, troubles, with_processes
from tests.integration.store_engine import project, store_in_process

pytestmark = pytest.mark.integration

EVENTS = recorded()
RUN_ID = run_of(EVENTS)
START_MS, END_MS = phase_ms(EVENTS, "measure")


@pytest.fixture
def build(engine, monkeypatch):
    """Build the report of the recorded run from some of its events."""

    store_in_process(engine, monkeypatch)

    def built(events):
        project(engine, events)
        return build_report("", RUN_ID).as_json()

    return built


def rates(found):
    """Records per second of the input, and of every stage by pipeline."""
    stages = {
        (name, stage): cell["records_per_second"]
        for name, one in found["pipelines"].items()
        for stage, cell in one["stages"].items()
    }
    return stages | {"input": found["input"]["records_per_second"]}


def test_rates_of_a_run_that_was_interrupted_are_those_of_the_seconds_it_had(build):
    half_ms = START_MS + 10_000
    cut = [(t, record) for t, record in EVENTS if record.get("second", record["time"]) < half_ms]
    counted = Counter()
    for topic, record in cut:
        if topic == catalogue.GENERATOR and record["phase"] == "measure":
            counted["input"] += record["acknowledged"]
        elif topic == catalogue.THROUGHPUT and record["second"] >= START_MS and record["pipeline"]:
            counted[record["pipeline"], record["stage"]] += record["records"]
    assert rates(build(cut)) == {name: records / 10 for name, records in counted.items()}
    assert counted["input"] == 4_000  # at 400 records/s


def test_a_run_that_ended_before_it_measured_has_no_rates(build):
    cut = [
        (topic, record)
        for topic, record in EVENTS
        if topic == catalogue.LIFECYCLE and record["event"] == RunRequested.name
    ]
    found = build(cut)
    assert found["invalid_reasons"] == ["The run is not concluded."]
    assert set(rates(found).values()) == {0.0}


@pytest.mark.parametrize(("valid", "p50"), [(True, 2), (False, None)])
def test_a_floor_counts_if_its_own_run_was_valid(build, valid, p50):
    head = {"run_id": protocol.floor_run_id(RUN_ID), "time": START_MS - 1000, "producer": "tests"}
    reasons = [] if valid else ["The generator was late."]
    told = {"kind": "run", "valid": valid, "invalid_reasons": reasons, "detail": "{}"}
    concluded = {"event": Concluded.name, "phase": "", "pipeline": "", "stage": ""}
    floor = [
        (topic, record | head | {"latencies_ms": [2], "counts": [9]})
        for topic, record in EVENTS
        if topic == catalogue.LATENCY
        and record["phase"] == "measure"
        and record["definition"] == "latest"
    ][:1]
    events = [(catalogue.LIFECYCLE, head | concluded | {"detail": "{}"})]
    events.append((catalogue.CONCLUSIONS, head | told))
    found = build([*EVENTS, *floor, *events])["floor"]
    assert (found and found["p50"]) == p50


def disturbed():
    """The recorded run as if its workload had killed a driver, which took 5 s to recover."""
    half_ms = (START_MS + END_MS) // 2000 * 1000
    pipeline = {"pipeline": "spark-microbatch", "stage": "", "phase": ""}
    head = {"run_id": RUN_ID, "producer": "tests"}
    killed = {"event": "killed", "time": half_ms, "detail": '{"target": "driver"}'}
    up = {"event": "pipeline_up", "time": half_ms + 5000, "detail": "{}"}
    for topic, record in EVENTS:
        if record.get("event") == RunRequested.name:
            request = json.loads(record["detail"])
            request["workload"]["kills"] = [{"target": "driver", "at_s": 10}]
            yield topic, record | {"detail": json.dumps(request)}
        else:
            yield topic, record
    yield from troubles(RUN_ID, half_ms)
    for event in (killed, up):
        yield catalogue.LIFECYCLE, head | pipeline | event


def stages_of(found):
    return [cell for one in found["pipelines"].values() for cell in one["stages"].values()]


def test_what_only_seconds_tell_is_left_out_when_they_have_expired(build, engine):
    found = build(disturbed())
    (restart,) = found["pipelines"]["spark-microbatch"]["restarts"]
    assert (found["seconds_expired"], restart["outage_s"], restart["late"]) == (False, 5.0, 51)
    assert all(len(cell["recovery"]) == 1 for cell in stages_of(found))

    engine.execute(["TRUNCATE TABLE tidegauge.results_latency"])
    later = build_report("", RUN_ID).as_json()
    (restart,) = later["pipelines"]["spark-microbatch"]["restarts"]
    assert (later["seconds_expired"], restart["outage_s"], restart["late"]) == (True, 5.0, 51)
    assert not any("recovery" in cell for cell in stages_of(later))
    with pytest.raises(QueryError, match="have expired"):
        seconds.latencies("", RUN_ID)
    latencies = [
        [
            {
                definition: one | {"intervals": None}
                for definition, one in cell["latency_ms"].items()
            }
            for cell in stages_of(each)
        ]
        for each in (found, later)
    ]
    assert latencies[0] == latencies[1]


def pairs(stage, appended_ms):
    """An event with single outputs, in the given order."""
    rows = range(len(appended_ms))
    head = {"run_id": RUN_ID, "time": END_MS, "producer": "evaluator", "stage": stage}
    return catalogue.PAIRS, head | {
        "pipeline": "spark-microbatch",
        "phases": ["measure" for _ in rows],
        "verdicts": ["exact" for _ in rows],
        "partitions": [0 for _ in rows],
        "offsets": list(rows),
        "appended_ms": appended_ms,
        "latest_input_ms": appended_ms,
        "mean_input_ms": [float(each) for each in appended_ms],
        "scheduled_us": [1000 * each for each in appended_ms],
    }


def test_the_longest_gap_from_each_kill_on_is_that_of_all_outputs(engine, monkeypatch):
    store_in_process(engine, monkeypatch)
    chance = Random(1)
    by_stage = {
        stage: [START_MS + chance.randrange(10_000) for _ in range(count)]
        for stage, count in (("parse", 400), ("join", 40), ("tumbling", 3))
    }
    # Some outputs share a millisecond, one that of a kill.
    times_ms = [START_MS + 2_000, START_MS + 2_500, START_MS + 9_000]
    by_stage["parse"] += [*by_stage["parse"][:50], times_ms[0]]
    project(engine, [pairs(stage, appended) for stage, appended in by_stage.items()])
    expected = {}
    for stage, appended in by_stage.items():
        before = min(appended)
        for at_ms in sorted(appended):
            number = sum(time_ms < at_ms for time_ms in times_ms)
            place = ("spark-microbatch", stage, number)
            since = max([before, *(time_ms for time_ms in times_ms if time_ms < at_ms)])
            expected[place] = max(expected.get(place, 0), at_ms - since)
            before = at_ms
    found = {
        (row.pipeline, row.stage, row.number): row.gap_ms
        for row in seconds.longest_gaps("", RUN_ID, times_ms)
    }
    assert found == expected
    assert not seconds.longest_gaps("", "another", times_ms)


def test_a_report_has_the_outage_and_the_cost_of_a_kill(build):
    half_ms = (START_MS + END_MS) // 2000 * 1000
    appended = [*range(START_MS, half_ms + 1, 50), *range(half_ms + 3_210, END_MS, 50)]
    found = build([*disturbed(), pairs("ingest", appended)])
    stages = found["pipelines"]["spark-microbatch"]["stages"]
    (recovered,) = stages["ingest"]["recovery"]
    assert (recovered["event"], recovered["outage_s"]) == ("kill of the driver", 3.21)
    assert "outage_s" not in stages["join"]["recovery"][0]
    counts = Counter()
    for topic, record in EVENTS:
        if topic == catalogue.LATENCY and record["definition"] == "latest":
            is_ingest = (record["pipeline"], record["stage"]) == ("spark-microbatch", "ingest")
            if is_ingest and START_MS <= record["second"] < half_ms:
                counts.update(dict(zip(record["latencies_ms"], record["counts"], strict=True)))
    before = sorted(counts.elements())
    assert recovered["before_p99_ms"] == before[-(-99 * len(before) // 100) - 1]
    high_for_s = recovered["high_for_s"]
    assert high_for_s == 4
    used = {(START_MS, half_ms): 0.0, (half_ms, half_ms + 1000 * high_for_s): 0.0}
    for topic, record in EVENTS:
        is_own = topic == catalogue.RESOURCES and record["pipeline"] == "spark-microbatch"
        if is_own and record["run_id"] == RUN_ID:
            length_ms = 1000 * record["interval_s"]
            for begin, end in used:
                from_ms, until_ms = max(begin, record["time"] - length_ms), min(end, record["time"])
                share = max(0.0, until_ms - from_ms) / length_ms
                used[begin, end] += share * record["cpu_seconds"]
    normal, after = used.values()
    extra = after - normal / ((half_ms - START_MS) / 1000) * high_for_s
    assert recovered["extra_core_s"] == pytest.approx(extra)


def series(pipeline, stage, definition):
    """Latencies by second of output of the recorded run."""
    found = {}
    for topic, record in EVENTS:
        if topic != catalogue.LATENCY or record["phase"] != "measure":
            continue
        if (record["pipeline"], record["stage"], record["definition"]) != (
            pipeline,
            stage,
            definition,
        ):
            continue
        second = found.setdefault(record["second"], Counter())
        second.update(dict(zip(record["latencies_ms"], record["counts"], strict=True)))
    return [found[at] for at in sorted(found)]


def test_every_latency_has_the_intervals_of_its_seconds_until_these_expire(build, engine):
    found = build(EVENTS)
    assert found["interleaved"] is None
    told = 0
    for name, pipeline in found["pipelines"].items():
        for stage, cell in pipeline["stages"].items():
            for definition, latency in cell["latency_ms"].items():
                rows = series(name, stage, definition)
                below = {
                    figure: [
                        sum(n for ms, n in row.items() if ms <= latency[figure]) for row in rows
                    ]
                    for figure in LEVELS
                }
                counts = [row.total() for row in rows]
                sums = [sum(ms * n for ms, n in row.items()) for row in rows]
                outputs = sum(rows, Counter())
                low, high = (quantile(outputs, level) for level in QUARTILES)
                held = [sum(min(max(ms, low), high) * n for ms, n in row.items()) for row in rows]
                expected = intervals_of(Seconds(counts, sums, held, below), outputs)
                assert latency["intervals"] == (
                    expected and {k: v and pytest.approx(list(v)) for k, v in expected.items()}
                )
                told += latency["intervals"] is not None
    assert told > 0
    engine.execute(["TRUNCATE TABLE tidegauge.results_latency"])
    later = build_report("", RUN_ID).as_json()
    assert {
        latency["intervals"] for cell in stages_of(later) for latency in cell["latency_ms"].values()
    } == {None}


MEASURED = ("measure", "latest")


def in_turns(block_s):
    """The recorded run as if its two pipelines had been interleaved."""
    for topic, record in EVENTS:
        if record.get("event") == RunRequested.name:
            request = json.loads(record["detail"])
            order = ["calibration", "spark-microbatch", "spark-microbatch", "calibration"]
            first_s = request["workload"]["phases"]["warm_up_s"]
            turns = {"block_s": block_s, "first_s": first_s, "order": order}
            yield topic, record | {"detail": json.dumps(request | {"interleaved": turns})}
        else:
            yield topic, record
            yield from by_input(topic, record)


def by_input(topic, record):
    """The same latencies by second of the latest input, as if the outputs of a second had been
    appended in its middle."""
    if topic != catalogue.LATENCY or (record["phase"], record["definition"]) != MEASURED:
        return
    kept = ("run_id", "time", "producer", "pipeline", "stage")
    for ms, count in zip(record["latencies_ms"], record["counts"], strict=True):
        yield (
            catalogue.SLICES,
            {name: record[name] for name in kept}
            | {"dimension": "input_second", "value": str((record["second"] + 500 - ms) // 1000)}
            | {"minute": record["second"] // 60_000 * 60_000}
            | {"latencies_ms": [ms], "counts": [count]},
        )


def test_blocks_of_pipelines_in_turns_have_every_output_of_their_inputs(build):
    found = build(in_turns(block_s=5))
    told = found["interleaved"]
    assert (END_MS - START_MS, told["blocks"], len(told["pairs"])) == (25_000, 5, 2)
    first = told["pairs"][0]["stages"]["parse"][0]
    rows = series("calibration", "parse", "latest")
    begin_ms = START_MS + 1_000  # an edge of a second on either side
    latencies = Counter()
    for at_ms, row in zip(seconds_of("calibration", "parse"), rows, strict=True):
        for ms, count in row.items():
            if begin_ms <= at_ms + 500 - ms < begin_ms + 3_000:
                latencies[ms] += count
    assert first["mean"] == sum(ms * n for ms, n in latencies.items()) / latencies.total()
    assert told["differences"] == {}
    assert told["said"].startswith("Too few blocks to compare spark-microbatch with calibration")
    # Rates cover a pipeline's own turns: its three blocks.
    records = sum(
        record["records"]
        for topic, record in EVENTS
        if topic == catalogue.THROUGHPUT
        and (record["pipeline"], record["stage"]) == ("calibration", "parse")
        and START_MS <= record["second"] < END_MS
    )
    parse = found["pipelines"]["calibration"]["stages"]["parse"]
    assert parse["records_per_second"] == pytest.approx(records / 15)


def test_the_cost_of_a_block_is_that_of_its_middle(build):
    build(in_turns(block_s=5))
    blocks = [
        Block(name, START_MS // 1000 + place, START_MS // 1000 + place + 5)
        for place, name in enumerate(("calibration", "spark-microbatch"))
    ]
    costs = UsageSamples.of("", RUN_ID).by_block(blocks, edge_s=1)
    assert set(costs) == set(blocks)
    for block, cost in costs.items():
        seconds = range(block.start_s + 1, block.end_s - 1)
        used = records = machine_s = 0
        for topic, record in EVENTS:
            if topic == catalogue.GENERATOR and record["second"] // 1000 in seconds:
                records += record["acknowledged"]
            elif topic == catalogue.RESOURCES:
                at_s = int(record["time"] / 1000 - record["interval_s"] / 2)
                if at_s in seconds and record["pipeline"] == block.pipeline:
                    used += record["cpu_seconds"]
                if at_s in seconds and record["service"] == protocol.MACHINE:
                    machine_s += record["interval_s"]
        lost = 3 / machine_s if machine_s < 0.95 * 3 else 1.0
        assert cost == pytest.approx(1e6 * used * lost / records)


def seconds_of(pipeline, stage):
    """The seconds of `series`."""
    return sorted(
        {
            record["second"]
            for topic, record in EVENTS
            if topic == catalogue.LATENCY
            and record["phase"] == "measure"
            and (record["pipeline"], record["stage"]) == (pipeline, stage)
            and record["definition"] == "latest"
        }
    )


def test_a_run_of_which_some_seconds_have_expired_has_not_all_of_them(build, engine):
    build(EVENTS)
    assert not seconds.expired("", RUN_ID)
    half = f"second < fromUnixTimestamp64Milli({(START_MS + END_MS) // 2})"
    table = "ALTER TABLE tidegauge.results_latency"
    engine.execute([f"{table} DELETE WHERE {half} SETTINGS mutations_sync = 2"])
    assert seconds.expired("", RUN_ID)


def test_the_curves_of_latency_are_by_the_minute_when_seconds_have_expired(build):
    build(EVENTS)
    by_second = timelines.read_timelines("", RUN_ID, expired=False)
    by_minute = timelines.read_timelines("", RUN_ID, expired=True)
    assert (by_second.latency_span_s, by_minute.latency_span_s) == (1, 60)
    start_s = START_MS / 1000 - by_minute.measure[0]
    for stages in by_minute.median_ms.values():
        for curve in stages.values():
            times = [at_s for at_s, _ms in curve]
            assert times == sorted(set(times))
            assert all(at_s == 0 or (start_s + at_s) % 60 == 0 for at_s in times)
            assert 0 <= times[0] <= times[-1] < by_minute.end_s
    # Data that does not expire is shown as before.
    assert by_minute.records == by_second.records
    assert by_minute.input_records == by_second.input_records
    assert by_minute.end_s <= by_second.end_s


def test_the_curves_of_a_study_are_medians_of_each_second_and_rates(build):
    build(with_processes(EVENTS))
    names = ("event_time", "output_rate", "pull_rate", "cpu_cores", "heap_mb", "scheduler_delay")
    pipeline = "spark-microbatch"
    curves = timelines.read_curves("", RUN_ID, pipeline, names)
    assert set(curves[""]) == set(names[2:])
    of_stages = {name for stage, own in curves.items() if stage for name in own}
    assert of_stages == {"event_time", "output_rate"}
    latest = timelines.read_curves("", RUN_ID, pipeline, ["latest"])
    expected = timelines.read_timelines("", RUN_ID, expired=False).median_ms[pipeline]
    assert {stage: tuple(own["latest"]) for stage, own in latest.items()} == expected
    # A sample has ten tasks, nine of them delayed by 3 ms, and an answer with 400 records.
    assert {value for _at_s, value in curves[""]["scheduler_delay"]} == {3}
    pulled = curves[""]["pull_rate"]
    assert [at_s for at_s, _value in pulled] == [*range(len(pulled))]
    assert {value % 400 for _at_s, value in pulled} == {0}
    assert sum(value for _at_s, value in pulled) >= 400
    assert timelines.read_curves("", RUN_ID, "stranger", names) == {}


def test_the_curves_by_rate_of_a_search_have_a_point_for_each_of_its_steps(build):
    is_request = {"event": RunRequested.name}.items()
    steps = [
        (topic, record | {"detail": json.dumps(json.loads(record["detail"]) | {"step_of": "s"})})
        if topic == catalogue.LIFECYCLE and is_request <= record.items()
        else (topic, record)
        for topic, record in EVENTS
    ]
    found = build(with_processes(steps))["pipelines"]
    for pipeline, own in found.items():
        curves = timelines.read_curves("", "s", pipeline, BY_RATE)
        rate = 400
        assert {stage for stage in curves if stage} == {*own["stages"]}
        for stage, cell in own["stages"].items():
            median_ms = cell["latency_ms"]["latest"]["p50"]
            assert curves[stage] == {"latency_by_rate": [(rate, median_ms)]}
        used = own["resources"]
        known = {"cpu_by_rate": used["cpu_cores"]}
        if pipeline == "spark-microbatch":
            known["heap_by_rate"] = used["heap_used_bytes_mean"] / 1e6
        assert curves[""] == {name: [(rate, round(value, 2))] for name, value in known.items()}


def test_results_of_what_the_plan_does_not_have_are_left_out_and_told(build):
    changed = {
        catalogue.VERDICTS: {"pipeline": "stranger"},
        catalogue.LATENCY: {"definition": "oldest"},
        catalogue.THROUGHPUT: {"pipeline": "spark-microbatch", "stage": "sixth"},
        catalogue.RESOURCES: {"pipeline": "guest"},
    }
    odd, left = [], dict(changed)
    for topic, record in EVENTS:
        at_ms, phase = record.get("second", record["time"]), record.get("phase", "measure")
        measured = START_MS <= at_ms < END_MS - 1000 and phase == "measure"
        if topic in left and record["run_id"] == RUN_ID and measured and record["pipeline"]:
            odd.append((topic, record | left.pop(topic)))
    assert left == {}
    plain = build(EVENTS)
    found = build(odd)
    assert plain["left_out"] == []
    assert found["left_out"] == [
        "definition oldest",
        "guest",
        "spark-microbatch sixth",
        "stranger " + odd_stage(odd),
    ]
    assert {**found, "left_out": []} == plain


def odd_stage(odd):
    """The stage of the verdicts of a pipeline that is not in the plan."""
    (stage,) = (record["stage"] for topic, record in odd if topic == catalogue.VERDICTS)
    return stage


def test_how_far_behind_a_pipeline_read_is_of_all_its_stages_in_the_measured_phase(build):
    def line(at_ms, stage, lag):
        named = {"run_id": RUN_ID, "time": at_ms, "producer": "runner", "stage": stage}
        counts = {"batch_id": 1, "input_rows": 0, "lag_records": lag, "detail": "{}"}
        return catalogue.PIPELINE, named | counts | {"pipeline": "calibration"}

    lines = [
        line(START_MS - 1, "join", 900),
        line(START_MS, "join", 70),
        line(START_MS + 1000, "parse", 200),
        line(END_MS - 2000, "parse", 5),
        line(END_MS - 1000, "join", 12),
        line(END_MS - 500, "join", None),
        line(END_MS, "parse", 800),
    ]
    found = build([*EVENTS, *lines])["pipelines"]
    assert {name: one["lag_records"] for name, one in found.items()} == {
        "calibration": {"max": 200, "end": 12},
        "spark-microbatch": None,
    }
    assert {name: one["topology"] for name, one in found.items()} == {
        "calibration": "chained",
        "spark-microbatch": "chained",
    }
    heap = {f"heap_used_bytes_{name}" for name in ("min", "mean", "max")}
    assert all(heap <= one["resources"].keys() for one in found.values())
    # Events of a version without it.
    assert all(one["resources"]["cpu_cores_by_process"] is None for one in found.values())


def test_what_a_pipeline_cost_has_the_interval_of_its_samples(build):
    used = {name: one["resources"] for name, one in build(EVENTS)["pipelines"].items()}
    cost = used["calibration"]["core_seconds_per_million_records"]
    # 0.118 to 0.137 cores, from 25 samples.
    low, high = (bound / used["calibration"]["cpu_cores"] for bound in (0.118452, 0.137314))
    assert used["calibration"]["core_seconds_interval"] == [
        pytest.approx(cost * low, rel=1e-4),
        pytest.approx(cost * high, rel=1e-4),
    ]
    # Its samples fall during its warm-up, so they are worth only eight independent ones.
    assert used["spark-microbatch"]["core_seconds_interval"] is None


def of_a_series():
    """The recorded run as if it were the second of a series of searches, with one pipeline."""
    scaled = {"series": RUN_ID, "pipeline": "calibration", "workers": 2, "partitions": 2}
    search = {"rate_per_second": 440.0, "interval_per_second": [440.0, 500.0]}
    for topic, record in EVENTS:
        changed = json.loads(record["detail"]) if "detail" in record else {}
        if record.get("event") == RunRequested.name:
            changed["scaled"] = scaled
            changed["pipelines"] = [
                one for one in changed["pipelines"] if one["name"] == "calibration"
            ]
        elif record.get("kind") == "run":
            changed["search"] = search | {"limited_by": "pipeline"}
        yield topic, record | ({"detail": json.dumps(changed)} if changed else {})


def test_the_report_of_a_run_of_a_series_has_the_series(build):
    alone = build(of_a_series())
    found = build_whole_report("", RUN_ID).as_json()
    (point,) = found["scalability"]["points"]
    assert (point["workers"], point["partitions"]) == (2, 2)
    assert point["rate_per_second"] == {"value": 440, "low": 440, "high": 500}
    (pipeline,) = alone["pipelines"].values()
    assert list(point["stages"]) == list(pipeline["stages"])
    for stage, figures in point["stages"].items():
        latest = pipeline["stages"][stage]["latency_ms"]["latest"]
        assert figures["p50"]["value"] == latest["p50"]
        assert figures["p99"]["value"] == latest["p99"]
    used = pipeline["resources"]
    assert point["core_seconds_per_million_records"] == {
        "value": used["core_seconds_per_million_records"],
        "low": used["core_seconds_interval"][0],
        "high": used["core_seconds_interval"][1],
    }
    cores, machine = alone["environment"]["cores"], alone["services"]["machine"]["cpu_cores"]
    assert point["free_cores"] == pytest.approx(cores - machine + used["cpu_cores"])
    # The recording's other pipeline used the machine.
    assert point["objection"].startswith(f"{point['free_cores']:.1f} of 2 cores were free; in use")
    assert found["scalability"]["law"] is None
    assert build_whole_report("", RUN_ID).as_json() == found
