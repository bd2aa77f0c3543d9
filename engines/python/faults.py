"""Which outputs of the calibration are faulty or delayed, and how; and how many records it
processes. Pure.

Outputs of one record are numbered by its sequence, all others by `address_number`. Each fault has
its own N. Of every N consecutive outputs the first is dropped, the second duplicated, the third
late, the fourth has wrong values. If faults coincide, the first named applies. Outputs of probe
records and copies of undecodable ones have a negative number and are never faulty.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

from stages.flow import Flow, Published
from stages.kinds import Spec
from stages.plan import Plan
from stages.records import Row

NONE, DROP, DUPLICATE, LATE, CORRUPT = "none", "drop", "duplicate", "late", "corrupt"
FAULTS = (DROP, DUPLICATE, LATE, CORRUPT)
PROBE = "-probe"  # ends the run id of probe records
SEQUENCE, WINDOW_START = "sequence", "window_start"
IDENTITY = (SEQUENCE, "scheduled_at", WINDOW_START, "window_end")
ROW_KINDS = ("copy", "decode", "filter", "lookup")
NUMBERS = {"int", "long", "float", "double"}


def fault_of(number: int, settings: Mapping[str, Any]) -> str:
    """NONE, DROP, DUPLICATE, LATE or CORRUPT. settings: of the pipeline, `<fault>_one_in`."""
    if number < 0:
        return NONE
    for place, fault in enumerate(FAULTS):
        one_in = settings[f"{fault}_one_in"]
        if one_in and number % one_in == place % one_in:
            return fault
    return NONE


def slowness_ms(due_ms: float, settings: Mapping[str, Any]) -> int:
    """Extra delay of an output due at this time: slow_ms during one second of every
    slow_every_s."""
    every_s = settings["slow_every_s"]
    return int(settings["slow_ms"]) if every_s and due_ms // 1000 % every_s == 0 else 0


def falling_ms(elapsed_ms: float, settings: Mapping[str, Any]) -> float:
    """The rest of the falling delay, `elapsed_ms` after the first record of a run."""
    most_ms: int = settings["falling_ms"]
    half_ms: int = 1000 * settings["falling_half_s"]
    return most_ms * 0.5 ** (max(0.0, elapsed_ms) / half_ms) if most_ms else 0.0


def service_ms(settings: Mapping[str, Any]) -> float:
    """Time for which a record occupies the pipeline: 1 / X(N) of the Universal Scalability Law
    (Gunther 2008), X(N) = λN / (1 + σ(N - 1) + κN(N - 1)); 0 without a capacity."""
    rate, workers = settings["capacity_per_second"], settings["workers"]
    if not rate:
        return 0.0
    more = workers - 1
    slower = 1 + settings["contention"] * more + settings["coherency"] * workers * more
    return 1000 * slower / (rate * workers)


def address_number(*address: object) -> int:
    """A number derived from an output's address only: its keys and event time or window."""
    return crc32(" ".join(map(str, address)).encode())


class Output(NamedTuple):
    """One output, to be published to a topic. number: see above. due_ms: start of its delay, epoch
    ms. record, fields: the schema and content of one that can be corrupted; stage: which it is
    of."""

    topic: str
    number: int
    due_ms: float
    key: bytes | None
    value: bytes
    stage: Spec
    record: str = ""
    fields: dict[str, Any] | None = None


class Outputs:
    """The outputs of a plan, numbered, with the time from which they are delayed."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._flow = plan, Flow(plan)
        named = {spec["name"]: spec for spec in plan.stages}
        self._specs = {topic: named[stage] for stage, topic in plan.outputs.items()}
        self._addresses = {spec["name"]: self._address(spec) for spec in plan.stages}
        # Never corrupt identity columns: the output would match other inputs.
        self._identities = {spec["name"]: self._identity(spec) for spec in plan.stages}

    def read(
        self, topic: str, key: Any, value: bytes | None, appended_ms: int, place: tuple[int, int]
    ) -> list[Output]:
        """The outputs due after one more record. Undecodable records are only copied. place:
        partition and offset."""
        row = self._plan.row_of(topic, value, appended_ms, place)
        record = self._plan.inputs[topic]["record"]
        fields = None if row is None else row.fields
        number = -1 if fields is None else fields[SEQUENCE]
        found = [
            Output(output, number, appended_ms, key, value, self._specs[output], record, fields)
            for output in self._plan.copies_of(topic)
            if value is not None
        ]
        return found if row is None else [*found, *map(self._output, self._flow.rows(row))]

    def tick(self, reached_ms: float) -> list[Output]:
        """The outputs due by time alone. reached_ms: see `Reading`."""
        return [*map(self._output, self._flow.due(reached_ms))]

    def _output(self, published: Published) -> Output:
        spec, row = published
        topic, key, value = self._plan.message_of(spec, row)
        due_ms, number = max(row.appended_ms, row.due_ms), self._number(spec, row)
        key = str(key).encode()
        return Output(topic, number, due_ms, key, value, spec, spec["record"], row.fields)

    def _number(self, spec: Spec, row: Row) -> int:
        fields = row.fields
        if row.source:
            return int(fields[SEQUENCE])
        if fields["run_id"].endswith(PROBE):
            return -1
        return address_number(*(fields[name] for name in self._addresses[spec["name"]]))

    def _address(self, spec: Spec) -> list[str]:
        """The columns whose values number an output of several records."""
        chain = self._plan.chain(spec["name"])
        last = next((one for one in chain if one["kind"] not in ROW_KINDS), None)
        if last is None:
            return []
        inputs = self._plan.inputs_of(last)
        if last["kind"] == "join":
            return [*last["keys"], inputs[0]["event_time"]]
        sources = {source: name for name, source in last["columns"].items()}
        pair = [sources.get(f"{one['name']}.{SEQUENCE}", "") for one in inputs]
        is_pair = last["kind"] == "window_join" and all(pair)
        return [*(pair if is_pair else last["keys"]), WINDOW_START]

    def _identity(self, spec: Spec) -> set[str]:
        """The columns that identify an output."""
        found = {*IDENTITY, spec["key"], *spec["keys"]}
        for one in self._plan.inputs_of(spec):
            found |= {one["event_time"], one["key"]}
        for step in self._plan.chain(spec["name"]):
            found |= {name for name, of in step["columns"].items() if of.endswith(f".{SEQUENCE}")}
        return found

    def corrupted(self, output: Output) -> bytes:
        """The value with one wrong column: the last number, else the last text that identifies
        nothing; unchanged if there is neither."""
        if output.fields is None:
            return output.value
        record, fields = self._plan.records[output.record], output.fields
        kept = self._identities[output.stage["name"]]
        free = [n for n in record.types if n not in kept and fields.get(n) is not None]
        numbers = [name for name in free if record.types[name] in NUMBERS]
        texts = [name for name in free if record.types[name] == "string" and name != "run_id"]
        if numbers:
            fields = fields | {numbers[-1]: fields[numbers[-1]] + 1}
        elif texts:
            fields = fields | {texts[-1]: fields[texts[-1]] + "?"}
        if output.stage["kind"] == "copy" and self._plan.is_json:
            return json.dumps({name: fields[name] for name in record.columns}).encode()
        return record.encode(fields)
