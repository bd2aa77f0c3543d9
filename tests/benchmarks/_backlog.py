"""A process that publishes a backlog as fast as it can: distinct keyed records of one run.

    python -m tests.benchmarks._backlog RUN_ID RECORDS START_MS

The records cover 100 seconds of event time from START_MS (epoch milliseconds, a whole second), the
same number in each. Prints the number of outputs of each stage as JSON, counting complete windows
only. The broker comes from the settings in the environment.
"""

import json
import sys
import time

import numpy as np

from schemas.load import Constant
from schemas.protocol import Content, Phases, Pipeline, RunRequest, Workload
from services.definitions.domains import load_domain
from services.generator.dataset_plan import DatasetPlan, dataset_plan
from services.generator.domain_records import new_records
from services.generator.producer_backend import open_backend
from services.generator.sender import PlannedLoad
from services.generator.settings import GeneratorSettings

EVENT_SECONDS = 100
FLUSH_S = 60.0


def main() -> None:
    """Publish, wait for all acknowledgements, print."""
    run_id, records, start_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    plan = plan_for(run_id, records)
    backend = open_backend(GeneratorSettings(), plan.domain.topics, records, in_order=True)
    backend.count_into(lambda _second, _acknowledged, _failed: None)
    keys: set[int] = set()  # of the first second of event time, as of every other second
    for prepared in PlannedLoad(plan, start_ms, 1).prepared():
        for batch in prepared.batches:
            if prepared.slice.event_second == 0:
                keys.update(np.unique(batch.keys).tolist())
            sent = 0
            while sent < len(batch):
                sent = backend.send(batch, sent, len(batch))
                if sent < len(batch):
                    time.sleep(0.0005)  # until the client's queue has room
    assert backend.flush(FLUSH_S) == 0, backend.last_error
    backend.close()
    print(json.dumps(implied(len(keys), records)))


def plan_for(run_id: str, records: int) -> DatasetPlan:
    """Records of one wall-clock second that span EVENT_SECONDS of event time."""
    workload = Workload(
        name="backlog",
        summary="-",
        load=Constant(rate_per_second=records),
        content=Content(second_ms=1000 // EVENT_SECONDS),
        phases=Phases(warm_up_s=0, measure_s=1, cool_down_s=3),
    )
    pipeline = Pipeline(
        name="p", summary="-", engine="spark", mode="real-time", implementation="customised"
    )
    domain = load_domain(workload.domain)
    request = RunRequest(
        run_id=run_id,
        workload=workload,
        pipelines=(pipeline,),
        stages=("parse",),
        domain=domain.spec,
    )
    return dataset_plan(request, domain.spec, new_records(domain, request))


def implied(keys: int, records: int) -> dict[str, int]:
    """Outputs by stage; keys: number of keys in each second of event time."""
    return {
        "ingest": records,
        "parse": records,
        "join": records // 2,
        "tumbling": keys * EVENT_SECONDS,
        "sliding": keys * (EVENT_SECONDS - 2),
    }


if __name__ == "__main__":
    main()
