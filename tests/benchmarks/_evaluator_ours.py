"""Evaluates the filled topics as the service does, on one core: `… PLAN_FILE [client]`. The
settings of the service make it one of several.

client: only read and decode, the minimum that any evaluator of these topics has to do.
"""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from schemas import protocol
from schemas.commands import Prepare, Start, Stop
from schemas.protocol import RunPlan
from services.evaluator.columnar.decode import decode
from services.evaluator.run.reader import PartitionShard, Reader
from services.evaluator.run.session import EvaluatorSession, RunTopics
from services.evaluator.settings import EvaluatorSettings
from services.runtime.events import open_events
from services.runtime.kafka import assigned_consumer, end_offsets
from services.runtime.process import release_memory, warm_up_process
from services.runtime.settings import load_settings
from tests.benchmarks._evaluator_topics import RUN_ID, output_of, read_plan
from tests.traffic import CODEC, TRAFFIC

MEBIBYTE = 1024 * 1024
READ_S = 0.05  # how long a read waits for more records


def main() -> None:
    """Print messages and seconds from the first read to the last verdict, and memory, as JSON."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    plan, phases = read_plan(Path(sys.argv[1]))
    warm_up_process()
    settings = load_settings(EvaluatorSettings)
    current = EvaluatorSession(RunTopics(settings), open_events(settings, "bench"))
    run_id, issued_at = plan.request.run_id, time.time_ns() // 1_000_000 + 1_000
    head = {"run_id": run_id, "issued_at": issued_at}
    current.command(Prepare(command_id="prepare", plan=plan, **head))
    current.command(Start(command_id="start", phases=phases, **head))
    reader = current.reader
    assert reader is not None
    counts = counts_of(plan, settings)
    messages = sum(counts.values())
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    if sys.argv[2:] == ["client"]:
        _decode_only(reader, messages, settings)
    else:
        _evaluate(current, reader, messages, settings)
    found = {
        "messages": messages,
        "seconds": time.perf_counter() - begin_s,
        "cpu_seconds": time.process_time() - begin_cpu_s,
    }
    held_mb = psutil.Process().memory_info().rss / MEBIBYTE
    if not sys.argv[2:]:
        _check(current, plan.request.stages, counts)
    current.command(Stop(command_id="stop", reason="run finished", **head))
    reader.close()
    release_memory()
    left_mb = psutil.Process().memory_info().rss / MEBIBYTE
    print(json.dumps(found | {"memory_mb": held_mb, "memory_given_back_mb": left_mb}))


def _evaluate(
    current: EvaluatorSession, reader: Reader, messages: int, settings: EvaluatorSettings
) -> None:
    published_s = time.perf_counter()
    while messages > 0:
        for batch in reader.read(settings.batch_records, READ_S):
            messages -= len(batch.batch.values)
            current.add(batch)
        if time.perf_counter() - published_s >= settings.publish_s:
            current.advance(reader.frontier())
            published_s = time.perf_counter()
    current.advance(reader.frontier())


def _decode_only(reader: Reader, messages: int, settings: EvaluatorSettings) -> None:
    records = {one.topic: (one.record,) for one in TRAFFIC.inputs}
    while messages > 0:
        for found in reader.read(settings.batch_records, READ_S):
            batch = found.batch
            stage = batch.topic.rpartition(".")[2]
            of_topic = records.get(batch.topic) or TRAFFIC.records_of(stage)
            assert not decode(CODEC, tuple(dict.fromkeys(of_topic)), batch.values)[1]
            messages -= len(batch.values)


def _check(current: EvaluatorSession, stages: tuple[str, ...], counts: dict[str, int]) -> None:
    """Assert that every output has a verdict. counts: of each topic."""
    assert current.publication is not None
    verdicts = current.publication.totals[RUN_ID]
    for stage in stages:
        assert verdicts[stage]["exact"] == counts[output_of(stage)], (stage, verdicts[stage])
        assert all(verdicts[stage][one] == 0 for one in protocol.FAILED_VERDICTS), verdicts


def counts_of(plan: RunPlan, settings: EvaluatorSettings) -> dict[str, int]:
    """Number of records of each topic in the partitions of this evaluator."""
    consumer = assigned_consumer(settings, "bench-counts")
    shard = PartitionShard(settings.evaluator_instance_index, settings.evaluator_instance_count)
    found = Counter[str]()
    for topic, starts in plan.start_offsets.items():
        ends = shard.of({topic: tuple(end_offsets(consumer, topic))})
        for (_, partition), end in ends.items():
            found[topic] += end - starts[partition]
    consumer.close()
    return found


if __name__ == "__main__":
    main()
