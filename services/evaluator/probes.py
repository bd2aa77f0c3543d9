"""The generator's clock against the broker's, from the records that are sent before the load.

probes = Probes(plan)
probes.add(batch)                  # of any input topic
probes.records, probes.offset_ms, probes.complaint()
"""

from schemas.protocol import RunPlan, probe_run_id
from services.evaluator.decode import Decoded, input_decoder
from services.evaluator.evaluation import Batch, domain_of


class Probes:
    """The least difference of appending and sending is the offset of the clocks plus the shortest
    way, which is short: the smaller the difference, the less of it is the way."""

    def __init__(self, plan: RunPlan) -> None:
        workload = plan.request.workload
        self._domain = domain_of(plan)
        self._run_id = probe_run_id(plan.request.run_id)
        self._decode = input_decoder(workload.content.format)
        self._rules = workload.validity
        self.records = 0
        self.offset_ms = float("inf")

    def add(self, batch: Batch) -> None:
        """Take in records of an input topic; those of other runs say nothing."""
        for rows in self._decoded(batch):
            mine = rows.of_run(self._run_id)
            if not len(mine):
                continue
            # An append time is whole milliseconds: on average half of one has been cut off.
            away_us = (batch.appended_ms[mine.places] * 1000 + 500) - mine.ints("scheduled_at")
            self.records += len(mine)
            self.offset_ms = min(self.offset_ms, float(away_us.min()) / 1000)

    def _decoded(self, batch: Batch) -> list[Decoded]:
        records = (self._domain.input(batch.topic).record,)
        return self._decode(self._domain.codec, records, batch.values)[0]

    @property
    def is_ahead(self) -> bool:
        """Whether the generator's clock is too far ahead, which more records cannot mend."""
        return self.offset_ms < -self._rules.max_clock_ahead_ms

    def complaint(self) -> str:
        """Why nothing can be measured against these clocks, or nothing."""
        if self.is_ahead:
            return (
                f"The generator's clock is at least {-self.offset_ms:.1f} ms ahead of the "
                "broker's, so that latencies since the scheduled time would be too small."
            )
        if self.records and self.offset_ms > self._rules.max_clock_behind_ms:
            return (
                f"No probe record was appended within {self.offset_ms:.0f} ms of its sending: the "
                "generator's clock is behind the broker's, or the way is that long."
            )
        return ""
