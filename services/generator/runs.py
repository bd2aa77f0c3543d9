"""The generator's actions on each command and between commands.

idle ── prepare ──► prepared (probe traffic) ── start ──► loading ── load over ──► idle
                         └────────────── stop, at any time ──────────────┴──► idle

Probe traffic is complete records, so that pipelines show with their output that they are running.
Every stage publishes an output for each set. The run id of probe records is not that of the
measured run, so they are not counted.
"""

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from confluent_kafka import KafkaException, Producer
from prometheus_client import Counter, Gauge

from schemas import catalogue
from schemas.codec import encode_json
from schemas.commands import Command, Malformed, Measure, Prepare, Start, Stop
from schemas.domain import RUN_ID, SCHEDULED_AT, SEQUENCE
from schemas.events import Failed, LoadFinished, Ready
from schemas.protocol import PhasePlan, RunPlan, probe_run_id
from schemas.records import first_probe_set
from services.definitions.row_files import InputError
from services.definitions.trusted import content_objection, trusted_domain
from services.generator.dataset_plan import DatasetPlan, dataset_plan
from services.generator.domain_records import new_records
from services.generator.librdkafka import ClientError
from services.generator.producer_backend import (
    FrameBackend,
    ProducerBackend,
    linger_ms,
    open_backend,
)
from services.generator.sender import LoadThread, PlannedLoad
from services.generator.settings import GeneratorSettings
from services.generator.socket_backend import SocketBackend
from services.generator.statistics import Statistics, load_summary
from services.runtime.events import Events
from services.runtime.kafka import (
    KAFKA_TIMEOUT_S,
    KafkaUnavailableError,
    assigned_consumer,
    end_offsets,
    idempotent_producer,
)
from services.runtime.logs import Log
from services.runtime.process import now_ms, now_us, release_memory

PROBE_SEQUENCE = -1
RECORDS_PER_S = 360

Probe = tuple[str, bytes, bytes]
IDLE_POLL_S = 0.5
BUSY_POLL_S = 0.25
INTERVAL_MS = 1000
REHEARSED_SLICES = 50
RECORDS = Counter(
    "tidegauge_generator_records_total", "Records of the load by outcome.", ["outcome"]
)
WAITING = Gauge(
    "tidegauge_generator_waiting_records", "Records that are due and not yet handed to the client"
)


class ProbeTraffic:
    """The probe sets of one run. failure: the error of the first record that was not delivered;
    empty if all were. sets_per_second: upper limit. first: number of the first set. also: gets the
    records, too."""

    def __init__(
        self,
        plan: DatasetPlan,
        producer: Producer,
        sets_per_second: int,
        first: int,
        also: Callable[[str, bytes, bytes], None] | None = None,
    ) -> None:
        self.failure = ""
        self._also = also
        self.producer = producer
        self._plan = plan
        self._sets = first
        size = len(probe_set(plan, first, now_us()))
        self._sets_per_second = max(1, min(sets_per_second, RECORDS_PER_S // size))

    def send(self) -> None:
        """Send the sets of one second. Raises BufferError and ValueError."""
        for _ in range(self._sets_per_second):
            for topic, key, value in probe_set(self._plan, self._sets, now_us()):
                self.producer.produce(topic, value, key, on_delivery=self._delivered)
                if self._also is not None:
                    self._also(topic, key, value)
            self.producer.poll(0)
            self._sets += 1

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None and not self.failure:
            self.failure = str(error)


def probe_set(plan: DatasetPlan, number: int, now_us: int) -> list[Probe]:
    """Topic, key and value of the records of one set, in the order of sending. now_us: epoch
    microseconds. Raises ValueError if the domain returns no records."""
    domain, result = plan.domain, []
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
        item = domain.input(name)
        record = fields | header
        if as_json:
            value = encode_json(item.record, record, domain.codec)
        else:
            value = domain.codec.encode(item.record, record)
        key = str(record[item.key]).encode()
        result += [(each.input(name).topic, key, value) for each in plan.request.domains]
    return result


@dataclass(frozen=True)
class Loading:
    """The running load of a run."""

    statistics: Statistics
    thread: LoadThread


@dataclass
class LoadRun:
    """A run from `prepare` to its end. loading: None before `start`. next_at_ms: time of the next
    probe traffic or statistics."""

    plan: DatasetPlan
    backend: ProducerBackend
    probes: ProbeTraffic
    next_at_ms: int = 0
    loading: Loading | None = None

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.plan.request.run_id


class RunCommands:
    """Executes commands for one run at a time. One thread; the load has its own."""

    def __init__(self, settings: GeneratorSettings, events: Events, log: Log) -> None:
        self._settings = settings
        self._events = events
        self._log = log
        self._run: LoadRun | None = None
        self._has_left = False  # whether memory of the last run may still be held

    @property
    def poll_timeout_s(self) -> float:
        """Maximum wait for a command before the next `tick`."""
        return BUSY_POLL_S if self._run else IDLE_POLL_S

    def handle_command(self, command: Command | Malformed) -> None:
        """Execute a command; ignore those of other runs and for other services."""
        run_id = command.run_id
        is_current = self._run is not None and self._run.run_id == run_id
        try:
            match command:
                case Prepare() if not is_current:
                    self.abandon(f"run {run_id} is prepared")
                    self._prepare(run_id, command.plan)
                case Start() if is_current:
                    self._start(command.phases)
                case Measure() if is_current and self._run and self._run.loading:
                    self._run.loading.thread.replan(command.phases)
                case Stop() if is_current:
                    self.abandon("stop")
                case Malformed(name="prepare", reason=reason):
                    raise InputError(reason)
                case Malformed(name="start" | "measure", reason=reason) if is_current:
                    raise InputError(reason)
        except (ValueError, KafkaException, KafkaUnavailableError, ClientError) as error:
            self._fail(run_id, f"the generator could not {command.name}: {error}")

    def tick(self) -> None:
        """Send probe traffic, publish statistics or conclude the load, whichever is due."""
        run = self._run
        if run is None:
            self._release()
            return
        try:
            if run.loading and run.loading.thread.finished.is_set():
                self._conclude(run, run.loading)
            elif now_ms() >= run.next_at_ms:
                run.next_at_ms = now_ms() // INTERVAL_MS * INTERVAL_MS + INTERVAL_MS
                if run.loading:
                    self._publish(run.run_id, run.loading, now_ms())
                else:
                    run.probes.send()
        except (KafkaException, KafkaUnavailableError, BufferError) as error:
            self._fail(run.run_id, f"the generator cannot reach the broker: {error}")
        except ValueError as error:
            self._fail(run.run_id, f"the generator cannot create probe traffic: {error}")

    def abandon(self, reason: str) -> None:
        """End the current run immediately, if there is one."""
        run, self._run = self._run, None
        if run is None:
            return
        if run.loading:
            run.loading.thread.stop()
            self._publish(run.run_id, run.loading, None)
        self._leave(run)
        self._log.info("run_left", run_id=run.run_id, reason=reason)

    def _prepare(self, run_id: str, plan: RunPlan) -> None:
        settings, workload = self._settings, plan.request.workload
        generators = settings.generator_instance_count
        if workload.transport != "kafka" and generators > 1:
            # Acknowledgements are derived from the growth of whole topics.
            raise InputError(
                f"the transport {workload.transport} supports one generator, not {generators}; "
                "leave out --transport, or set TIDEGAUGE_GENERATOR_INSTANCE_COUNT to 1"
            )
        dataset = self._dataset_plan(plan)
        shard = dataset.shard
        peak = workload.load.peak_per_second / shard.count
        in_order = not workload.faults.any
        producer = idempotent_producer(settings, "generator-probes")
        topics, also = plan.request.input_topics, None
        backend: ProducerBackend
        if plan.request.socket_pipeline is not None:
            backend = system = SocketBackend(
                settings, topics, workload.transport, run_id, linger_ms(peak, None)
            )
            also = system.probe
        elif workload.transport == "kafka":
            backend = open_backend(settings, topics, peak, in_order)
        else:
            backend = FrameBackend(settings, topics, workload.transport, run_id, shard.index)
        first = first_probe_set(plan.request.domain, warm=plan.warm)
        probes = ProbeTraffic(dataset, producer, settings.generator_probe_sets, first, also)
        run = self._run = LoadRun(dataset, backend, probes)
        self._rehearse(run)
        run.probes.send()
        waiting = producer.flush(KAFKA_TIMEOUT_S)
        if waiting or run.probes.failure:
            reason = run.probes.failure or "no acknowledgement"
            raise KafkaUnavailableError(f"probe traffic was not accepted: {reason}")
        run.next_at_ms = now_ms() + INTERVAL_MS
        self._events.publish(
            Ready(
                run_id=run_id,
                service="generator",
                instance_index=shard.index,
                instance_count=shard.count,
            )
        )
        self._log.info("prepared", run_id=run_id, shape=workload.load.shape, peak_per_second=peak)

    def _dataset_plan(self, plan: RunPlan) -> DatasetPlan:
        """Read the files named by the domain and the workload's content; bad rows become dead
        letters of the run. Raises ValueError with one sentence."""
        request, settings = plan.request, self._settings
        domain = trusted_domain(request.domain, settings.data)
        objection = content_objection(request.workload.content, settings.data)
        if objection is not None:
            raise InputError(objection)
        records = new_records(domain, request)
        index, count = settings.generator_instance_index, settings.generator_instance_count
        if index == 0:
            for row in records.bad_rows:
                self._events.dead_letter(row, request.run_id)
        return dataset_plan(request, request.domains[0], records, index, count)

    def _rehearse(self, run: LoadRun) -> None:
        """Encode one second of the load without sending it. The first encoding takes a second of
        processor time (lazily loaded libraries, names of keys), and the partitions of all keys a
        tenth, which must not delay the load."""
        load = PlannedLoad(run.plan, load_start_ms=0, seconds=1)
        for prepared in islice(load.prepared(), REHEARSED_SLICES):
            for batch in prepared.batches:
                run.backend.send(batch, 0, 0)
        # Exclude existing objects from collection, which would take tens of ms each time during the
        # load.
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    def _start(self, plan: PhasePlan) -> None:
        run = self._run
        if run is None or run.loading:
            return
        load = PlannedLoad(run.plan, plan.load_start_ms, plan.phases.total_s)
        statistics = Statistics(run.plan.shape, plan, run.plan.shard)
        thread = LoadThread(load, statistics, run.backend, self._settings, now_us)
        run.loading = Loading(statistics, thread)
        self._log.info("load_started", run_id=run.run_id, plan=json.loads(plan.model_dump_json()))

    def _publish(self, run_id: str, loading: Loading, until_ms: int | None) -> None:
        for event in loading.statistics.take_changes(until_ms):
            self._events.publish_figures(catalogue.GENERATOR, run_id, **event)
            for outcome in ("intended", "sent", "acknowledged", "failed"):
                RECORDS.labels(outcome).inc(event[outcome])
        WAITING.set(loading.thread.waiting_records)

    def _conclude(self, run: LoadRun, loading: Loading) -> None:
        self._publish(run.run_id, loading, None)
        self._events.flush()
        if loading.thread.error is not None:
            error = loading.thread.error
            self._fail(run.run_id, f"the generator stopped sending: {error}")
            return
        statistics, shard = loading.statistics, run.plan.shard
        finished = LoadFinished(
            run_id=run.run_id,
            intended=statistics.totals.intended,
            acknowledged=statistics.totals.acknowledged,
            failed=statistics.totals.failed,
            end_offsets=self._end_offsets(run.plan.request.input_topics),
            instance_index=shard.index,
            instance_count=shard.count,
            faults=dict(statistics.faults),
            messages=load_summary(
                run.plan.request.workload.load, statistics.max_delay_us, run.backend.last_error
            ),
        )
        self._run = None
        self._leave(run)
        self._events.publish(finished)
        self._log.info("load_finished", run_id=run.run_id, **vars(statistics.totals))

    def _end_offsets(self, topics: Sequence[str]) -> dict[str, tuple[int, ...]]:
        consumer = assigned_consumer(self._settings, "generator-end-offsets")
        try:
            return {topic: end_offsets(consumer, topic) for topic in topics}
        finally:
            consumer.close()

    def _leave(self, run: LoadRun) -> None:
        run.probes.producer.purge()
        run.probes.producer.flush(1)
        run.backend.close()
        self._has_left = True

    def _release(self) -> None:
        """Free the memory of the last run, once."""
        if self._has_left:
            self._has_left = False
            gc.unfreeze()
            release_memory()

    def _fail(self, run_id: str, reason: str) -> None:
        self.abandon(reason)
        self._log.error("run_failed", run_id=run_id, reason=reason)
        self._events.publish(Failed(run_id=run_id, reason=reason))
