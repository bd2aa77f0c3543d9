"""Evaluates a past run again, from the retained topics and with today's definitions:

    python -m services.evaluator.run.reevaluation RUN_ID

Compares every count with the one published live. Exit code 0: all are equal, except those explained
by the time at which the live evaluator stopped. 1: others differ. 2: the run can no longer be
evaluated.
"""

import sys
import time
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException

from schemas import catalogue
from schemas.commands import Command, Malformed, Measure, Prepare, Start, Stop
from schemas.protocol import PhasePlan, RunPlan
from services.evaluator.columnar.column_mapping import NotJudgedError
from services.evaluator.run.publishing import AnyEvaluation, evaluation_of, read_published
from services.evaluator.run.reader import (
    ALL,
    FETCHING,
    DeletedError,
    Reader,
    TimestampError,
    TopicPartition,
    check_kept,
    commit_reader,
    offsets_at,
    reached,
)
from services.evaluator.settings import EvaluatorSettings
from services.runtime.counting import CountDifference, CountReconciler
from services.runtime.events import read_commands
from services.runtime.kafka import KafkaUnavailableError, assigned_consumer
from services.runtime.logs import configure_logs
from services.runtime.process import warm_up_process
from services.runtime.settings import EXIT_USAGE, load_settings

MAX_LINES = 20
READ_TIMEOUT_S = 15.0
READ_S = 0.2  # timeout of one read


class CannotEvaluateError(RuntimeError):
    """The run cannot be evaluated again; the text is one sentence."""


REASONS_TO_REFUSE = (
    CannotEvaluateError,
    DeletedError,
    NotJudgedError,
    KafkaException,
    KafkaUnavailableError,
    TimestampError,
)


@dataclass(frozen=True)
class PastRun:
    """A finished run: its plan, and when it was prepared and stopped (epoch ms)."""

    plan: RunPlan
    phases: PhasePlan
    prepared_ms: int
    stopped_ms: int


def main() -> int:
    """Evaluate the run named on the command line and print the result."""
    if len(sys.argv) != 2:
        print("usage: python -m services.evaluator.run.reevaluation RUN_ID", file=sys.stderr)
        return EXIT_USAGE
    settings = load_settings(EvaluatorSettings)
    configure_logs("evaluator-again", "warning")
    warm_up_process()
    try:
        past = past_run(read_commands(settings, "evaluator-history")[0], sys.argv[1])
        counts = evaluate(settings, past)
    except REASONS_TO_REFUSE as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return EXIT_USAGE
    return show(past, list(counts.differences()), counts.counted)


def past_run(commands: list[Command | Malformed], run_id: str) -> PastRun:
    """A run as its commands describe it. Raises CannotEvaluateError."""
    prepare = phases = stop = None
    for command in commands:
        if command.run_id != run_id:
            continue
        match command:
            case Prepare():
                prepare = command
            case Start() | Measure():
                phases = command.phases
            case Stop():
                stop = command
    if prepare is None or phases is None:
        raise CannotEvaluateError(f"The retained commands do not start run {run_id}.")
    if stop is None:
        raise CannotEvaluateError(f"Run {run_id} has not ended.")
    return PastRun(prepare.plan, phases, prepare.issued_at, stop.issued_at)


def evaluate(settings: EvaluatorSettings, past: PastRun) -> CountReconciler:
    """Count the run again. Returns the differences from what was published. Raises DeletedError if
    records have been deleted, CannotEvaluateError if the broker does not deliver them."""
    consumer = assigned_consumer(settings, "evaluator-again", **FETCHING)
    try:
        begins = past.plan.start_offsets
        ends = offsets_at(consumer, begins, past.stopped_ms)
        check_kept(consumer, ALL.of(begins))
        run_id = past.plan.request.run_id
        counts = read_published(settings, run_id, None, past.prepared_ms).counts
        evaluation = evaluation_of(past.plan, past.phases)
        inputs, clock = evaluation.inputs, lambda: past.stopped_ms
        with closing(commit_reader(settings, ALL.of(begins), inputs)) as commits:
            reader = Reader(
                consumer,
                lambda _places: ends,
                begins,
                inputs,
                clock,
                with_input_offsets=past.plan.request.has_input_offsets,
                commits=commits,
            )
            _count(evaluation, reader, ends, settings, counts)
        return counts
    finally:
        consumer.close()


def _count(
    evaluation: AnyEvaluation,
    reader: Reader,
    ends: dict[TopicPartition, int],
    settings: EvaluatorSettings,
    counts: CountReconciler,
) -> None:
    deadline_s = time.monotonic() + READ_TIMEOUT_S
    while True:
        frontier = reader.frontier()
        evaluation.advance(frontier.input_ms, frontier.output_ms)
        evaluation.add_aborted(frontier.aborted)
        for topic, fields in evaluation.take_events():
            counts.count(topic, fields)
        if reached(frontier.positions, ends):
            return
        if time.monotonic() > deadline_s:
            raise CannotEvaluateError("The broker did not deliver the records of the run.")
        for read in reader.read(settings.batch_records, READ_S):
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            evaluation.add(read.batch)


def show(past: PastRun, differences: list[CountDifference], counted: dict[str, int]) -> int:
    """Print what is equal and what differs; returns the exit code."""
    explained = [difference for difference in differences if is_explained(difference, past.phases)]
    others = [difference for difference in differences if difference not in explained]
    print(f"Run {past.plan.request.run_id}, evaluated again:")
    for topic, count in counted.items():
        print(f"  {topic:<20} {count:>12,} counted")
    for other in others[:MAX_LINES]:
        print(f"  {other}")
    if len(others) > MAX_LINES:
        print(f"  … and {len(others) - MAX_LINES} more")
    if explained:
        print(
            f"  {len(explained)} counts of the cool-down differ, which is expected: the run was "
            "stopped before all outputs arrived."
        )
    print("DIFFERENT from the live result." if others else "EQUAL to the live result.")
    return 1 if others else 0


def is_explained(difference: CountDifference, phases: PhasePlan) -> bool:
    """Whether the time at which the run was stopped explains the difference: it is in the
    cool-down, whose outputs are not waited for."""
    address = difference.address
    if difference.topic == catalogue.THROUGHPUT:
        return bool(address["second"] >= phases.measure_end_ms)
    return bool(address.get("phase") == "cool_down")


if __name__ == "__main__":
    sys.exit(main())
