"""From `prepare` to `ready`: an evaluator is ready when it has seen the clocks and can measure
against them."""

from schemas import protocol
from schemas.protocol import RunPlan
from services.evaluator.evaluation import Batch
from services.evaluator.probes import Probes
from services.evaluator.share import Share
from services.runtime.clock import Clock, now_ms
from services.runtime.events import Events

PATIENCE_MS = 30_000  # for a probe record that took a short way


class Readiness:
    """Looks at the probe traffic of one run until it can say ready, or why not."""

    def __init__(self, plan: RunPlan, share: Share, events: Events, clock: Clock = now_ms) -> None:
        self._run_id = plan.request.run_id
        self._share = share
        self._events = events
        self._clock = clock
        self._probes = Probes(plan)
        self._first_seen_ms: int | None = None

    def add(self, batch: Batch) -> None:
        """Take in records of an input topic."""
        self._probes.add(batch)

    def tell(self) -> str | None:
        """Publish the offset of the clocks and `ready` once both can be said.

        Returns None while they cannot, an empty string when they were, else why nothing can be
        measured.
        """
        probes = self._probes
        if not probes.records:
            return None
        if self._first_seen_ms is None:
            self._first_seen_ms = self._clock()
        complaint = probes.complaint()
        is_patient = self._clock() - self._first_seen_ms < PATIENCE_MS
        if complaint and is_patient and not probes.is_ahead:
            return None
        told = {"offset_ms": round(probes.offset_ms, 1), "records": probes.records}
        self._events.lifecycle(protocol.CLOCK_OFFSET, self._run_id, detail=told)
        if not complaint:
            mine = {"instance_index": self._share.index, "instance_count": self._share.count}
            detail = {"service": "evaluator", **mine}
            self._events.lifecycle(protocol.READY, self._run_id, detail=detail)
        return complaint
