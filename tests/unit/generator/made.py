"""Loads of literal workloads, and their records decoded."""

from schemas import codec
from schemas.catalogue import record_of
from schemas.json_format import decode_json
from schemas.protocol import Content, Load, Phases, Pipeline, RunRequest, Workload
from services.generator import ahead
from services.generator.input_files import read_input
from services.generator.recipe import recipe_of
from services.generator.recording import recording_of
from services.generator.share import Share

START_MS = 1_700_000_000_000
NDW = recording_of(read_input(Content()).observations)
WHOLE = Share()


def a_recipe(load, seed=1, share=WHOLE, recording=NDW, run_id="r1", **fields):
    if not isinstance(load, Load):
        load = Load(rate_per_second=load)
    workload = Workload(name="w", summary="-", load=load, phases=Phases(), **fields)
    pipeline = Pipeline(name="p", summary="-", mode="real-time", implementation="customised")
    request = RunRequest(
        run_id=run_id, workload=workload, pipelines=(pipeline,), stages=("parse",), seed=seed
    )
    return recipe_of(request, recording, share)


def a_load(load, seconds, **fields):
    return ahead.Load(a_recipe(load, **fields), START_MS, seconds)


def messages_of(load, limit=50_000):
    """Topic, key, value, microseconds when due, of every message in the order of preparation."""
    found = []
    for prepared in load.prepared(limit):
        for lot in prepared.lots:
            for position in range(len(lot)):
                key, value = lot.record(position)
                found.append((lot.topic, key, value, int(lot.due_us[position])))
    return found


def records_of(load, seconds, limit=50_000, **fields):
    """Schema name and record of every message, by sequence; keys are checked on the way."""
    decoded = []
    made = a_load(load, seconds, **fields)
    for topic, key, value, _ in messages_of(made, limit):
        name = record_of(topic)
        if made.recipe.request.workload.content.format == "json":
            record = decode_json(name, value)
        else:
            found, record = codec.decode(value)
            assert found == name
        assert key.decode() == record["measurement_id"]
        decoded.append((name, record))
    return sorted(decoded, key=lambda pair: pair[1]["sequence"])
