"""Schedules samples and labels them with the run."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

import psutil

from schemas import catalogue
from schemas.commands import Command, Malformed, Prepare, Stop
from schemas.events import Ready
from schemas.protocol import SAMPLER, largest
from services.collector.accounting import Accountant, Owner, OwnerUsage
from services.collector.processes import (
    MACHINE,
    StackFile,
    StackProcesses,
    StackService,
    counts_use,
    read_machine,
)
from services.collector.settings import CollectorSettings
from services.collector.sources import Sample, Scraped, SourcePolling
from services.runtime.events import Events, read_commands, unfinished
from services.runtime.kafka import NoTopicError
from services.runtime.limits import ProcessLimits, limits, machine
from services.runtime.process import now_ms

# A Kafka record is at most 1 MiB; a character is at most 4 bytes.
MAX_CHARACTERS: Final = 150_000
MOST_PROCESSES: Final = 32  # of a pipeline, by name, in an event
CHARACTERS_BESIDES: Final = 40  # for the numbers and lengths of one sample


def fields_of(answer: Scraped) -> Iterator[dict[str, Any]]:
    """Fields of one event, or of several if one would be too large."""
    begin = 0
    while begin < len(answer.samples):
        end = _end(answer.samples, begin)
        samples = answer.samples[begin:end]
        yield {
            "time": answer.time_ms,
            "source": answer.source,
            "interval_s": answer.interval_s,
            "names": [sample.name for sample in samples],
            "labels": [dict(sample.labels) for sample in samples],
            "kinds": [sample.kind for sample in samples],
            "values": [sample.value for sample in samples],
            "increases": list(answer.increases[begin:end]),
        }
        begin = end


def _end(samples: tuple[Sample, ...], begin: int) -> int:
    """End of the event that begins with this sample; it contains at least one."""
    characters = 0
    for number in range(begin, len(samples)):
        characters += _characters(samples[number])
        if characters > MAX_CHARACTERS and number > begin:
            return number
    return len(samples)


def _characters(sample: Sample) -> int:
    labels = sum(len(name) + len(value) for name, value in sample.labels.items())
    return CHARACTERS_BESIDES + len(sample.name) + labels


class Collecting:
    """Samples at a fixed interval, with or without a run; the run only labels what is published.

    watching: polls the other sources at an interval of its own. beside: the only service to sample,
    whose container this is; None for the machine and all services of the stack on it.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        events: Events,
        watching: SourcePolling | None = None,
        beside: StackService | None = None,
    ) -> None:
        self._settings = settings
        self._events = events
        self._watching = watching
        self._beside = beside
        self._stack = StackFile(settings.stack_path)
        self._processes = StackProcesses()
        self._accountant = Accountant(began_s=time.time())
        self._run_id = ""
        self._sampled_s: float | None = None
        self._next_sample_s = self._next_scan_s = time.monotonic()

    def wait_s(self) -> float:
        """Time until the next sample."""
        return max(0.0, self._next_sample_s - time.monotonic())

    def resume(self) -> None:
        """Resume the current run after a restart in the middle of it. The time without samples is a
        gap. Raises KafkaUnavailableError, KafkaException: never label samples with no run while the
        current run is unknown."""
        with suppress(NoTopicError):  # no run yet
            commands, _end = read_commands(self._settings, "collector-history")
            mine = unfinished(commands, now_ms())
            if mine:
                self._run_id = mine[0].run_id
            if len(mine) == 1:  # prepared, not started: the conductor may still wait
                self._say_ready()

    def handle_command(self, command: Command | Malformed) -> None:
        """Track the current run: from `prepare` until its `stop`."""
        match command:
            case Prepare():
                self._run_id = command.run_id
                self._say_ready()
            case Stop() if command.run_id == self._run_id:
                self._run_id = ""

    def _say_ready(self) -> None:
        """The console that requested the run may be on another machine than the one observed."""
        ready = (
            Ready(run_id=self._run_id, machine_cores=self._limits().cores)
            if self._beside is None
            else Ready(run_id=self._run_id, service=SAMPLER, pipeline_cores=limits().cores)
        )
        self._events.publish(ready)

    def _services(self) -> tuple[StackService, ...]:
        if self._beside is None:
            return self._stack.services()
        return self._beside, StackService(name=SAMPLER, pid=os.getpid())

    def _limits(self) -> ProcessLimits:
        """What the observed processes may use: those of a stack on this machine have the
        collector's limits. Those that run elsewhere, such as in other containers, do not."""
        return limits() if len(self._stack.services()) > 1 else machine()

    def tick(self) -> None:
        """Publish answers of other sources; sample and publish if it is time."""
        for answer in self._watching.answers() if self._watching else ():
            for fields in fields_of(answer):
                self._events.publish_figures(catalogue.METRICS, self._run_id, **fields)
        now_s = time.monotonic()
        if now_s < self._next_sample_s:
            return
        interval_s = self._settings.collector_interval_s
        # Skip missed samples: the next interval is longer and records its length.
        self._next_sample_s += interval_s * (1 + (now_s - self._next_sample_s) // interval_s)
        if now_s >= self._next_scan_s:
            self._processes.scan(self._services())
            self._next_scan_s = now_s + self._settings.collector_scan_interval_s
        self._publish()

    def _publish(self) -> None:
        now_s = time.monotonic()
        usage = self._usage()
        before_s, self._sampled_s = self._sampled_s, now_s
        if before_s is None:
            return  # the first sample is the baseline
        for owner, used in usage.items():
            self._events.publish_figures(
                catalogue.RESOURCES,
                self._run_id,
                service=owner.service,
                pipeline=owner.pipeline,
                interval_s=now_s - before_s,
                cpu_seconds=used.cpu_s,
                memory_bytes=used.memory_bytes,
                processes=used.processes,
                threads=used.threads,
                **asdict(used.counters),
                **asdict(used.gauges),
                cpu_seconds_by_process=largest(used.cpu_s_by_process, MOST_PROCESSES),
                received_bytes_by_process=largest(used.received_by_process, MOST_PROCESSES),
                sent_bytes_by_process=largest(used.sent_by_process, MOST_PROCESSES),
            )

    def _usage(self) -> dict[Owner, OwnerUsage]:
        """Since the last call; of the machine too unless only one service is sampled."""
        samples = self._processes.sample()
        if self._beside is not None:
            return self._accountant.account(samples)
        allowed = self._limits()
        usage = self._accountant.account([*samples, read_machine(allowed)])
        usage[MACHINE] = replace(usage[MACHINE], processes=len(psutil.pids()))
        if not counts_use(allowed):
            ours_s = sum(used.cpu_s for owner, used in usage.items() if owner != MACHINE)
            usage[MACHINE] = replace(usage[MACHINE], cpu_s=ours_s)
        return usage
