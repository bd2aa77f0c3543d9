"""Loads of literal workloads, and their decoded records."""

from schemas.codec import decode_json
from schemas.load import Constant, Shape
from schemas.protocol import Phases, Pipeline, RunRequest, Workload
from services.definitions.domains import load_domain
from services.generator.dataset_plan import dataset_plan
from services.generator.domain_records import new_records
from services.generator.sender import PlannedLoad

START_MS = 1_700_000_000_000
TRAFFIC = load_domain("traffic")


def a_request(load, seed=1, run_id="r1", domain=TRAFFIC, **fields):
    if not isinstance(load, Shape):
        load = Constant(rate_per_second=load)
    workload = Workload(name="w", summary="-", load=load, phases=Phases(), **fields)
    pipeline = Pipeline(
        name="p", summary="-", engine="spark", mode="real-time", implementation="customised"
    )
    return RunRequest(
        run_id=run_id,
        workload=workload,
        pipelines=(pipeline,),
        stages=("parse",),
        seed=seed,
        domain=domain.spec.resolved(workload.windows),
    )


def a_plan(load, shard=(0, 1), domain=TRAFFIC, **fields):
    request = a_request(load, domain=domain, **fields)
    return dataset_plan(request, request.domain, new_records(domain, request), *shard)


def a_load(load, seconds, **fields):
    return PlannedLoad(a_plan(load, **fields), START_MS, seconds)


def records_between(shape, start_us, end_us):
    """Number of records scheduled from `start_us`, inclusive, to `end_us`, exclusive."""
    return shape.due(end_us - 1) - shape.due(start_us - 1)


def messages_of(load, limit=50_000):
    """Topic, key, value and scheduled microseconds of every message, in the order of
    preparation."""
    found = []
    for prepared in load.prepared(limit):
        for batch in prepared.batches:
            for position in range(len(batch)):
                key, value = batch.record(position)
                found.append((batch.topic, key, value, int(batch.due_us[position])))
    return found


def decoded(domain, topic, value, wire_format="avro"):
    """Schema name and record of a value. Raises DecodeError."""
    name = domain.input(topic).record
    if wire_format == "json":
        return name, decode_json(name, value, domain.codec)
    return domain.codec.decode(value)


def records_of(load, seconds, limit=50_000, **fields):
    """Input and record of every message, by sequence; also checks the keys."""
    found = []
    made = a_load(load, seconds, **fields)
    domain, wire_format = made.plan.domain, made.plan.request.workload.content.format
    for topic, key, value, _ in messages_of(made, limit):
        one = domain.input(topic)
        name, record = decoded(domain, topic, value, wire_format)
        assert name == one.record
        assert key.decode() == str(record[one.key])
        found.append((one.name, record))
    return sorted(found, key=lambda pair: pair[1]["sequence"])
