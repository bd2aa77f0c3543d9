"""Probe traffic: complete records, so that pipelines show with their output that they are running.

Every stage publishes an output for each set. The run id of probe records is not that of the
measured run, so they are not counted.
"""

from confluent_kafka import Producer

from schemas.domain import RUN_ID, SCHEDULED_AT, SEQUENCE
from schemas.json_format import encode_json
from schemas.protocol import probe_run_id
from services.generator.dataset_plan import DatasetPlan
from services.runtime.clock import now_us

PROBE_SEQUENCE = -1
RECORDS_PER_S = 360

Probe = tuple[str, bytes, bytes]


class ProbeTraffic:
    """The probe sets of one run, numbered from 0. failure: the error of the first record that was
    not delivered; empty if all were. sets_per_second: upper limit."""

    def __init__(self, plan: DatasetPlan, producer: Producer, sets_per_second: int) -> None:
        self.failure = ""
        self.producer = producer
        self._plan = plan
        self._sets = 0
        size = len(probe_set(plan, 0, now_us()))
        self._sets_per_second = max(1, min(sets_per_second, RECORDS_PER_S // size))

    def send(self) -> None:
        """Send the sets of one second. Raises BufferError and ValueError."""
        for _ in range(self._sets_per_second):
            for topic, key, value in probe_set(self._plan, self._sets, now_us()):
                self.producer.produce(topic, value, key, on_delivery=self._delivered)
            self.producer.poll(0)
            self._sets += 1

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None and not self.failure:
            self.failure = str(error)


def probe_set(plan: DatasetPlan, number: int, now_us: int) -> list[Probe]:
    """Topic, key and value of the records of one set, in the order of sending. now_us: epoch
    microseconds. Raises ValueError if the domain returns no records."""
    domain, found = plan.domain, []
    as_json = plan.request.workload.content.format == "json"
    header = {
        SEQUENCE: PROBE_SEQUENCE,
        RUN_ID: probe_run_id(plan.request.run_id),
        SCHEDULED_AT: now_us,
    }
    records = plan.records.probe_set(number, now_us // 1000)
    if not records:
        raise ValueError(f"a probe set of the domain {domain.name} is empty")
    for name, fields in records:
        one = domain.input(name)
        record = fields | header
        if as_json:
            value = encode_json(one.record, record, domain.codec)
        else:
            value = domain.codec.encode(one.record, record)
        key = str(record[one.key]).encode()
        found += [(each.input(name).topic, key, value) for each in plan.request.domains]
    return found
