"""Evaluates the filled topics as the service does, bound to one core: `… PLAN_FILE`."""

import json
import os
import sys
import time
from pathlib import Path

from schemas import protocol
from services.evaluator.session import RunSession, warm_up_process
from services.evaluator.settings import EvaluatorSettings
from services.runtime.events import open_events
from services.runtime.settings import load_settings
from tests.benchmarks._evaluator_topics import PER_TOPIC, read_plan


def main() -> None:
    """Print messages and seconds from the first read to the last verdict, as JSON."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    plan, phases = read_plan(Path(sys.argv[1]))
    warm_up_process()
    settings = load_settings(EvaluatorSettings)
    current = RunSession(settings, open_events(settings, "bench"))
    for number, (name, body) in enumerate((("prepare", plan), ("start", phases))):
        current.command(
            {
                "command_id": str(number),
                "run_id": plan.request.run_id,
                "issued_at": time.time_ns() // 1_000_000 + 1_000,
                "command": name,
                "body": body.model_dump_json(),
            }
        )
    assert current.reader is not None
    begin_s = published_s = time.perf_counter()
    messages = 0
    while messages < 4 * PER_TOPIC:
        for batch in current.reader.read(settings.batch_records, settings.poll_s):
            messages += len(batch.batch.values)
            current.add(batch)
        if time.perf_counter() - published_s >= settings.publish_s:
            current.advance(current.reader.frontier())
            published_s = time.perf_counter()
    current.advance(current.reader.frontier())
    seconds = time.perf_counter() - begin_s
    assert current.publication is not None
    verdicts = current.publication.totals["bench"]["parse"]
    assert verdicts["exact"] == 2 * PER_TOPIC, verdicts
    assert all(verdicts[one] == 0 for one in protocol.FAILED_VERDICTS), verdicts
    current.reader.close()
    print(json.dumps({"messages": messages, "seconds": seconds}))


if __name__ == "__main__":
    main()
