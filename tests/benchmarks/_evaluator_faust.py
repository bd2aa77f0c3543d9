"""The peer: a plain Faust agent that only counts events and reads their time, on one core."""

import json
import os
import time
from typing import Any

import faust

from services.runtime.settings import ServiceSettings, load_settings
from tests.benchmarks._evaluator_topics import output_of
from tests.traffic import TRAFFIC

WARM_UP = 2_000


def main() -> None:
    """Print messages and seconds as JSON, and exit."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    settings = load_settings(ServiceSettings)
    (settings.data / "faust").mkdir(parents=True, exist_ok=True)
    messages = int(os.environ["TIDEGAUGE_BENCH_MESSAGES"])
    app = faust.App(
        f"bench-{time.time_ns()}",
        broker=f"kafka://{settings.bootstrap}",
        store="memory://",
        datadir=settings.data / "faust",
        topic_disable_leader=True,
        topic_allow_declare=False,
        consumer_auto_offset_reset="earliest",
        web_enabled=False,
        autodiscover=False,
    )
    topic = app.topic(
        *TRAFFIC.topics,
        output_of("parse"),
        key_type=bytes,
        value_type=bytes,
        value_serializer="raw",
    )

    @app.agent(topic)  # type: ignore[untyped-decorator]
    async def count(stream: Any) -> None:
        seen, newest, begin_s, begin_cpu_s = 0, 0.0, 0.0, 0.0
        async for event in stream.events():
            seen += 1
            newest = max(newest, event.message.timestamp)
            if seen == WARM_UP:
                begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
            elif seen == WARM_UP + messages:
                took = {
                    "seconds": time.perf_counter() - begin_s,
                    "cpu_seconds": time.process_time() - begin_cpu_s,
                }
                print(json.dumps({"messages": messages} | took), flush=True)
                os._exit(0)

    worker = faust.Worker(app, loglevel="WARN", quiet=True, redirect_stdouts=False)
    worker.execute_from_commandline()


if __name__ == "__main__":
    main()
