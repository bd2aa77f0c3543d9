"""The evaluation of a run that measures its pipelines alternately. Each pipeline has its own input
topics and therefore its own `Evaluation`. Pure, like `Evaluation`."""

from collections.abc import Iterator
from typing import Any

from schemas.protocol import PhasePlan, RunPlan
from services.evaluator.decode import Refused
from services.evaluator.evaluation import Batch, Evaluation


class InterleavedEvaluation:
    """Several evaluations; a batch goes to the one that reads its topic."""

    def __init__(self, plan: RunPlan, phases: PhasePlan) -> None:
        shares = [plan.model_copy(update={"request": one}) for one in plan.request.shares]
        self._parts = tuple(Evaluation(share, phases, len(shares)) for share in shares)
        self._of_topic = {topic: part for part in self._parts for topic in part.topics}
        self.run_id = plan.request.run_id
        self.inputs = plan.request.input_topics
        self.where = {topic: place for part in self._parts for topic, place in part.where.items()}

    def replan(self, phases: PhasePlan) -> None:
        for part in self._parts:
            part.replan(phases)

    def cells(self) -> int:
        return sum(part.cells() for part in self._parts)

    def add(self, batch: Batch) -> list[Refused]:
        return self._of_topic[batch.topic].add(batch)

    def advance(self, input_frontier_ms: int, output_frontier_ms: int) -> None:
        for part in self._parts:
            part.advance(input_frontier_ms, output_frontier_ms)

    def open_in_measure(self) -> int:
        return sum(part.open_in_measure() for part in self._parts)

    @property
    def came_forgotten(self) -> int:
        return sum(part.came_forgotten for part in self._parts)

    def take_events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for part in self._parts:
            yield from part.take_events()


AnyEvaluation = Evaluation | InterleavedEvaluation


def evaluation_of(plan: RunPlan, phases: PhasePlan) -> AnyEvaluation:
    """Create the evaluation of a run."""
    if plan.request.interleaved is not None:
        return InterleavedEvaluation(plan, phases)
    (request,) = plan.request.shares  # includes the topics that it reads
    return Evaluation(plan.model_copy(update={"request": request}), phases)
