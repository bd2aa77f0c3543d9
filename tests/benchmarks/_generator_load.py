"""A generator process that sends a load faster than it can: prints its rate as JSON.

    python -m tests.benchmarks._generator_load RECORDS LINGER_MS

It does what the service does for a run, from rows to acknowledgements: distinct keyed records of
the recorded sample, each with its own sequence and time, encoded while they are sent. The scheduled
rate exceeds that of any machine, so sending never waits for the schedule. The broker and the number
of partitions come from the settings in the environment.
"""

import json
import resource
import sys
import time

from schemas.load import Constant
from schemas.protocol import (
    PhasePlan,
    Phases,
    Pipeline,
    RunRequest,
    Workload,
)
from services.definitions.domains import load_domain
from services.generator.dataset_plan import dataset_plan
from services.generator.domain_records import new_records
from services.generator.producer_backend import open_backend
from services.generator.sender import LoadThread, PlannedLoad
from services.generator.settings import GeneratorSettings
from services.generator.statistics import Statistics
from services.runtime.process import now_ms, now_us

SCHEDULED_PER_SECOND = 2_500_000
THREAD_SWITCH_S = 0.0005  # as in the service


def main() -> None:
    """Send, wait for all acknowledgements, print."""
    records, linger_ms = int(sys.argv[1]), float(sys.argv[2])
    sys.setswitchinterval(THREAD_SWITCH_S)
    settings = GeneratorSettings(
        generator_linger_ms=linger_ms,
        generator_acks="1",
        generator_backlog_records=100_000_000,
    )
    seconds = max(4, -(-records // SCHEDULED_PER_SECOND))
    load = Constant(rate_per_second=records / seconds)
    phases = Phases(warm_up_s=0, measure_s=seconds - 3, cool_down_s=3)
    workload = Workload(name="bench", summary="-", load=load, phases=phases)
    pipeline = Pipeline(
        name="p", summary="-", engine="spark", mode="real-time", implementation="customised"
    )
    domain = load_domain(workload.domain)
    request = RunRequest(
        run_id="20260101-000000-abcd",
        workload=workload,
        pipelines=(pipeline,),
        stages=("parse",),
        domain=domain.spec,
    )
    plan = dataset_plan(request, domain.spec, new_records(domain, request))
    backend = open_backend(settings, domain.spec.topics, load.peak_per_second, in_order=True)
    sizes = [
        int((batch.messages["value_bytes"] + batch.messages["key_bytes"]).mean())
        for prepared in PlannedLoad(plan, 0, 1).prepared()  # as the service rehearses
        for batch in prepared.batches
    ]
    start_ms = (now_ms() + 1999) // 1000 * 1000
    statistics = Statistics(plan.shape, PhasePlan(load_start_ms=start_ms, phases=phases))
    before = resource.getrusage(resource.RUSAGE_SELF)
    thread = LoadThread(PlannedLoad(plan, start_ms, seconds), statistics, backend, settings, now_us)
    while not thread.finished.wait(1):
        statistics.take_changes(now_ms())
    took_s = time.time() - start_ms / 1000
    statistics.take_changes(None)
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert thread.error is None, thread.error
    totals = statistics.totals
    assert totals.acknowledged == totals.intended, totals
    found = {
        "records_per_second": totals.acknowledged / took_s,
        "record_bytes": sum(sizes) / len(sizes),
        "memory_mb": used.ru_maxrss / 1024,
        "cpu_us_per_record": 1e6
        * (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)
        / totals.acknowledged,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
