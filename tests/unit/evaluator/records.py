"""Input and output records with literal times, a run, and the sums of an evaluation's events."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any

import numpy as np

from schemas import catalogue
from schemas.codec import DecodeError
from schemas.load import Constant
from schemas.protocol import (
    Judgement,
    PhasePlan,
    Phases,
    Pipeline,
    RunPlan,
    RunRequest,
    Workload,
)
from services.evaluator.columnar.columns import LIMITS, UNKNOWN, StateLimits
from services.evaluator.columnar.decode import UndecodedRecord
from services.evaluator.pairing.evaluation import Evaluation, RecordBatch
from tests.traffic import CODEC, TRAFFIC

RUN_ID = "run"
START_MS = 1_800_000_000_000
# Warm-up: the first 2 s; measure: 3 s from here; cool-down: from MEASURE_END_MS on.
PHASES = PhasePlan(load_start_ms=START_MS, phases=Phases(warm_up_s=2, measure_s=3, cool_down_s=3))
MEASURE_MS = START_MS + 2_000
MEASURE_END_MS = START_MS + 5_000
DEADLINE_MS, GIVE_UP_MS = 1_000, 2_000
FAR_MS = START_MS + 10_000_000

# Publishes incomplete windows.
BUILT_IN = Pipeline(
    name="p",
    summary="-",
    engine="spark",
    stages=TRAFFIC.stage_names,
    incomplete_windows="publish",
)

VALUES = {"flow": "flow_vehicles_per_hour", "speed": "speed_km_per_hour"}


def a_plan(stages: tuple[str, ...] = TRAFFIC.stage_names, **judgement: Any) -> RunPlan:
    """A run of one pipeline `p`: late after 1 s, missing after 2 s."""
    workload = Workload(
        name="test",
        summary="-",
        load=Constant(rate_per_second=1),
        phases=PHASES.phases,
        judgement=Judgement(deadline_ms=DEADLINE_MS, give_up_ms=GIVE_UP_MS, **judgement),
    )
    pipeline = Pipeline(
        name="p", summary="-", engine="spark", mode="real-time", implementation="customised"
    )
    request = RunRequest(
        run_id=RUN_ID, workload=workload, pipelines=(pipeline,), stages=stages, domain=TRAFFIC
    )
    return RunPlan(request=request, start_offsets={})


def an_evaluation(*stages: str, limits: StateLimits = LIMITS, **judgement: Any) -> Evaluation:
    """An evaluation of the given stages, or of all."""
    return Evaluation(a_plan(stages or TRAFFIC.stage_names, **judgement), PHASES, limits=limits)


@dataclass(frozen=True)
class Reading:
    """One input record. `appended_ms` is its LogAppendTime, `handed_ms` when it was handed to the
    pipeline."""

    kind: str
    appended_ms: int
    value: float
    sequence: int = 0
    observed_ms: int = START_MS
    scheduled_us: int = MEASURE_MS * 1000
    site: str = "a"
    lane: str = "lane1"
    lanes: int = 1
    run_id: str = RUN_ID
    offset: int = field(default=UNKNOWN, compare=False)
    handed_ms: int | None = field(default=None, compare=False)

    @property
    def topic(self) -> str:
        """The input topic of its kind."""
        return f"traffic.{self.kind}"

    @property
    def encoded(self) -> bytes:
        """The encoded value."""
        value = int(self.value) if self.kind == "flow" else float(self.value)
        return CODEC.encode(
            f"traffic_{self.kind}",
            {
                "measurement_id": self.site,
                "lane": self.lane,
                "num_lanes": self.lanes,
                "latitude": 52.5,
                "longitude": 4.25,
                "observed_at": self.observed_ms,
                "period_s": 60,
                "accuracy_percent": 95,
                VALUES[self.kind]: value,
                "sequence": self.sequence,
                "run_id": self.run_id,
                "scheduled_at": self.scheduled_us,
            },
        )


@dataclass(frozen=True)
class Output:
    """One record of an output topic. fields: None for `ingest` and for undecodable values.
    visible_ms: None in a partition without transactions."""

    stage: str
    appended_ms: int
    fields: dict[str, Any] | None = None
    raw: bytes = b""
    key: bytes | EllipsisType | None = ...  # the measurement id by default
    partition: int = 0
    visible_ms: int | None = None

    @property
    def key_on_the_wire(self) -> bytes | None:
        """Its key."""
        if self.key is not ...:
            return self.key
        fields = self.fields
        if fields is None:
            try:
                fields = CODEC.decode(self.raw)[1]
            except DecodeError:
                return None
        return str(fields["measurement_id"]).encode() if "measurement_id" in fields else None

    @property
    def topic(self) -> str:
        """The output topic of its stage."""
        return f"output.p.{self.stage}"

    @property
    def encoded(self) -> bytes:
        """The encoded value."""
        if self.fields is None:
            return self.raw
        return CODEC.encode(TRAFFIC.records_of(self.stage)[0], self.fields)


def parsed(reading: Reading) -> dict[str, Any]:
    """The expected output of `parse` for a reading."""
    return {
        "run_id": reading.run_id,
        "sequence": reading.sequence,
        "measurement_id": reading.site,
        "lane": reading.lane,
        "num_lanes": reading.lanes,
        "latitude": 52.5,
        "longitude": 4.25,
        "observed_at": reading.observed_ms,
        "period_s": 60,
        "accuracy_percent": 95,
        VALUES["flow"]: int(reading.value) if reading.kind == "flow" else None,
        VALUES["speed"]: float(reading.value) if reading.kind == "speed" else None,
    }


def joined(flow: int, speed: float, **changes: Any) -> dict[str, Any]:
    """A record of `output_join` of site a, lane1, the first second."""
    fields = {"measurement_id": "a", "lane": "lane1", "num_lanes": 1, "observed_at": START_MS}
    values = {VALUES["flow"]: flow, VALUES["speed"]: speed}
    return {"run_id": RUN_ID, **fields, **values, **changes}


def tumbled(lanes: int, flow: int, speed: float, **changes: Any) -> dict[str, Any]:
    """A record of `output_tumbling` of site a, the first second."""
    start_ms = changes.pop("start_ms", START_MS)
    return {
        "run_id": RUN_ID,
        "measurement_id": "a",
        "window_start": start_ms,
        "window_end": start_ms + 1_000,
        "lanes": lanes,
        "accumulated_flow_vehicles_per_hour": flow,
        "average_speed_km_per_hour": speed,
        **changes,
    }


def slid(
    flow: tuple[float | None, float | None],
    speed: tuple[float | None, float | None],
    **changes: Any,
) -> dict[str, Any]:
    """A record of `output_sliding` of site a, the first three seconds; (short, long) changes."""
    start_ms = changes.pop("start_ms", START_MS)
    return {
        "run_id": RUN_ID,
        "measurement_id": "a",
        "window_start": start_ms,
        "window_end": start_ms + 3_000,
        "flow_change_short": flow[0],
        "flow_change_long": flow[1],
        "speed_change_short": speed[0],
        "speed_change_long": speed[1],
        **changes,
    }


@dataclass
class Totals:
    """Sums of all events of an evaluation; cells that sum to zero are omitted.

    verdicts: by (stage, phase, verdict); verdict_seconds: by (stage, second, verdict) with seconds
    after START_MS; latencies: by (stage, definition, phase, latency_ms); latency_seconds: by
    (stage, second, latency of `latest`).
    """

    verdicts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    verdict_seconds: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    latencies: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    latency_seconds: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def count_verdict(self, stage: str, phase: str, time_ms: int, verdict: str, by: int) -> None:
        """Count a verdict at a time."""
        self.verdicts[stage, phase, verdict] += by
        self.verdict_seconds[stage, (time_ms - START_MS) // 1000, verdict] += by

    def count_latency(
        self, stage: str, definition: str, phase: str, time_ms: int, latency_ms: int, by: int
    ) -> None:
        """Count a latency at an output time."""
        self.latencies[stage, definition, phase, latency_ms] += by
        if definition == "latest":
            self.latency_seconds[stage, (time_ms - START_MS) // 1000, latency_ms] += by

    def count_events(self, events: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Count events of `results.latency` and `results.verdicts`."""
        for topic, event in events:
            if topic == catalogue.LATENCY:
                for latency_ms, count in zip(event["latencies_ms"], event["counts"], strict=True):
                    assert count > 0
                    where = (event["stage"], event["definition"], event["phase"], event["second"])
                    self.count_latency(*where, latency_ms, count)
            elif topic == catalogue.VERDICTS:
                for verdict in ("exact", "wrong", "missing", "late", "duplicate", "unexpected"):
                    where = (event["stage"], event["phase"], event["second"])
                    self.count_verdict(*where, verdict, event[verdict])

    def without_nothing(self) -> "Totals":
        """The same without zero cells. A Counter's own `+` would drop negative ones."""
        parts = (self.verdicts, self.verdict_seconds, self.latencies, self.latency_seconds)
        return Totals(*(Counter({k: n for k, n in part.items() if n}) for part in parts))


def samples_of(events: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Samples of events of `results.verdicts`, in order."""
    return [
        sample
        for topic, event in events
        if topic == catalogue.VERDICTS
        for sample in event["samples"]
    ]


class Run:
    """An evaluation, its rejected records and the totals of its events."""

    def __init__(self, *stages: str, limits: StateLimits = LIMITS, **judgement: Any) -> None:
        self.evaluation = an_evaluation(*stages, limits=limits, **judgement)
        self.refused: list[UndecodedRecord] = []
        self.samples: list[str] = []
        self._totals = Totals()
        self._frontiers_ms = (0, 0)
        self._newest_ms = 0

    def add(self, *records: Reading | Output) -> None:
        """Pass records to it in order, one batch per run of records of one topic."""
        stretch: list[Reading | Output] = []
        for record in records:
            if stretch and stretch[0].topic != record.topic:
                self._add(stretch)
                stretch = []
            stretch.append(record)
        if stretch:
            self._add(stretch)

    def advance(self, input_ms: int, output_ms: int | None = None) -> None:
        """Advance the frontiers; both to the same time by default."""
        self._frontiers_ms = (input_ms, input_ms if output_ms is None else output_ms)
        self.evaluation.advance(*self._frontiers_ms)

    def read_all(self) -> None:
        """Advance the frontiers past the newest record."""
        behind_ms = self._newest_ms + 1
        self.advance(*(max(frontier_ms, behind_ms) for frontier_ms in self._frontiers_ms))

    def totals(self) -> Totals:
        """Everything published so far."""
        events = list(self.evaluation.take_events())
        self._totals.count_events(events)
        self.samples += samples_of(events)
        return self._totals.without_nothing()

    def _add(self, records: list[Reading | Output]) -> None:
        appended_ms = np.array([record.appended_ms for record in records], np.int64)
        self._newest_ms = max(self._newest_ms, int(appended_ms.max()))
        values: list[bytes | None] = [record.encoded for record in records]
        keys = [getattr(record, "key_on_the_wire", None) for record in records]
        partitions = np.array([getattr(record, "partition", 0) for record in records], np.int64)
        visible = [getattr(record, "visible_ms", None) for record in records]
        visible_ms = np.array([UNKNOWN if each is None else each for each in visible], np.int64)
        batch = RecordBatch(
            records[0].topic,
            appended_ms,
            values,
            keys,
            partitions,
            visible_ms=visible_ms if (visible_ms != UNKNOWN).any() else None,
            offsets=np.array([getattr(each, "offset", UNKNOWN) for each in records], np.int64),
        )
        self.refused += self.evaluation.add(batch)


def verdicts_of(
    records: Iterable[Reading | Output], *stages: str, limits: StateLimits = LIMITS
) -> dict[str, int]:
    """Verdicts of all phases after everything was read and every deadline has passed."""
    run = Run(*stages, limits=limits)
    run.add(*records)
    run.advance(FAR_MS)
    found: Counter[str] = Counter()
    for (_stage, _phase, verdict), count in run.totals().verdicts.items():
        found[verdict] += count
    return dict(found)
