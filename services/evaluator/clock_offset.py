"""Readiness between `prepare` and `ready`. An evaluator is ready when it has measured the offset of
the generator's clock from the broker's on the probe traffic, and the offset is acceptable."""

from schemas.events import ClockOffsetMeasured, Ready
from schemas.protocol import RunPlan, probe_run_id
from services.evaluator.decode import Decoded, input_decoder
from services.evaluator.evaluation import Batch
from services.evaluator.reader import Shard
from services.runtime.clock import Clock, now_ms
from services.runtime.events import Events


class ClockOffset:
    """The minimum difference between append time and send time. It bounds the clock offset: it is
    the offset plus the shortest transit time to the broker."""

    def __init__(self, plan: RunPlan) -> None:
        workload = plan.request.workload
        self._codec = plan.request.domain.codec
        self._records = {
            one.topic: one.record for domain in plan.request.domains for one in domain.inputs
        }
        self._run_id = probe_run_id(plan.request.run_id)
        self._decode = input_decoder(workload.content.format)
        self._rules = workload.validity
        self.records = 0
        self.offset_ms = float("inf")

    def add(self, batch: Batch) -> None:
        """Add records of an input topic; records of other runs are ignored."""
        for rows in self._decoded(batch):
            mine = rows.of_run(self._run_id)
            if not len(mine):
                continue
            # LogAppendTime is truncated to milliseconds: on average half a millisecond is missing.
            away_us = (batch.appended_ms[mine.places] * 1000 + 500) - mine.ints("scheduled_at")
            self.records += len(mine)
            self.offset_ms = min(self.offset_ms, float(away_us.min()) / 1000)

    def _decoded(self, batch: Batch) -> list[Decoded]:
        return self._decode(self._codec, (self._records[batch.topic],), batch.values)[0]

    @property
    def is_ahead(self) -> bool:
        """Whether the generator's clock is too far ahead. More records cannot change that."""
        return self.offset_ms < -self._rules.max_clock_ahead_ms

    def complaint(self) -> str:
        """Why nothing can be measured with these clocks; empty if it can."""
        if self.is_ahead:
            return (
                f"The generator's clock is at least {-self.offset_ms:.1f} ms ahead of the "
                "broker's, so latencies from the scheduled time would be too small."
            )
        if self.records and self.offset_ms > self._rules.max_clock_behind_ms:
            return (
                f"The fastest probe record was appended {self.offset_ms:.0f} ms after it was sent, "
                f"allowed {self._rules.max_clock_behind_ms:g} ms (max_clock_behind_ms): the "
                "generator's clock is behind the broker's, or the broker is slow."
            )
        return ""


PATIENCE_MS = 30_000  # time to wait for a probe record with a short transit time


class Readiness:
    """Reads the probe traffic of one run until it can report ready or the reason why not."""

    def __init__(self, plan: RunPlan, shard: Shard, events: Events, clock: Clock = now_ms) -> None:
        self._run_id = plan.request.run_id
        self._shard = shard
        self._events = events
        self._clock = clock
        self._clocks = ClockOffset(plan)
        self._first_seen_ms: int | None = None

    def add(self, batch: Batch) -> None:
        """Add records of an input topic."""
        self._clocks.add(batch)

    def tell(self) -> str | None:
        """Publish the clock offset and, if it is acceptable, `ready`.

        Returns None while undecided, an empty string once ready, else the reason why nothing can be
        measured.
        """
        probes = self._clocks
        if not probes.records:
            return None
        if self._first_seen_ms is None:
            self._first_seen_ms = self._clock()
        complaint = probes.complaint()
        is_patient = self._clock() - self._first_seen_ms < PATIENCE_MS
        if complaint and is_patient and not probes.is_ahead:
            return None
        offset_ms, records = round(probes.offset_ms, 1), probes.records
        self._events.publish(
            ClockOffsetMeasured(run_id=self._run_id, offset_ms=offset_ms, records=records)
        )
        if not complaint:
            self._events.publish(
                Ready(
                    run_id=self._run_id,
                    service="evaluator",
                    instance_index=self._shard.index,
                    instance_count=self._shard.count,
                )
            )
        return complaint
