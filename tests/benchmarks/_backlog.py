"""One process that publishes a backlog as fast as it can: distinct keyed records of one run.

    python -m tests.benchmarks._backlog RUN_ID RECORDS START_MS

100 seconds of event time from START_MS (epoch milliseconds, a whole second) on, as many records in
each. Prints as JSON how many outputs of each stage they imply when only whole windows count. The
broker comes from the settings of the environment.
"""

import json
import sys
import time

import numpy as np

from schemas.protocol import Content, Load, Phases, Pipeline, RunRequest, Workload
from services.generator import ahead
from services.generator.input_files import read_input
from services.generator.outlet import open_outlet
from services.generator.recipe import Recipe, recipe_of
from services.generator.recording import recording_of
from services.generator.settings import GeneratorSettings
from services.generator.share import Share

EVENT_SECONDS = 100
FLUSH_S = 60.0


def main() -> None:
    """Publish, wait for all acknowledgements, print."""
    run_id, records, start_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    recipe = recipe_for(run_id, records)
    outlet = open_outlet(GeneratorSettings(), records, in_order=True)
    outlet.count_into(lambda _second, _acknowledged, _failed: None)
    for prepared in ahead.Load(recipe, start_ms, 1).prepared():
        for lot in prepared.lots:
            sent = 0
            while sent < len(lot):
                sent = outlet.send(lot, sent, len(lot))
                if sent < len(lot):
                    time.sleep(0.0005)  # until there is room in the client's queue
    assert outlet.flush(FLUSH_S) == 0, outlet.trouble
    outlet.close()
    print(json.dumps(implied(recipe, records)))


def recipe_for(run_id: str, records: int) -> Recipe:
    """Records of one second by the clock that lasts EVENT_SECONDS by event time."""
    workload = Workload(
        name="backlog",
        summary="-",
        load=Load(rate_per_second=records),
        content=Content(second_ms=1000 // EVENT_SECONDS),
        phases=Phases(warm_up_s=0, measure_s=1, cool_down_s=3),
    )
    pipeline = Pipeline(name="p", summary="-", mode="real-time", implementation="customised")
    request = RunRequest(run_id=run_id, workload=workload, pipelines=(pipeline,), stages=("parse",))
    return recipe_of(request, recording_of(read_input(workload.content).observations), Share())


def implied(recipe: Recipe, records: int) -> dict[str, int]:
    """Outputs by stage."""
    a_second = records // EVENT_SECONDS
    places = recipe.layout.places(0, a_second, np.arange(a_second // 2))
    sites = len(np.unique(places.site))
    return {
        "ingest": records,
        "parse": records,
        "join": records // 2,
        "tumbling": sites * EVENT_SECONDS,
        "sliding": sites * (EVENT_SECONDS - 2),
    }


if __name__ == "__main__":
    main()
