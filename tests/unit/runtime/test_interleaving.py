"""Runs that measure two pipelines alternately, each with its own input topics."""

import pytest
from pydantic import ValidationError

from schemas.load import Constant, Sine
from schemas.protocol import Interleaving, Phases, RunPlan, RunRequest, Workload
from schemas.validation_errors import DefinitionError
from services.definitions.domains import load_domain
from services.definitions.pipelines import load_pipeline
from services.definitions.requests import new_request
from services.runner.session import engine_plan
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit
TRAFFIC, GEM_PACKS = load_domain("traffic").spec, load_domain("gem_packs").spec
A, B = "spark-realtime", "spark-microbatch"
WORKLOAD = Workload(name="w", summary="-", load=Constant(rate_per_second=400), phases=Phases())


def asked(workload=WORKLOAD, stages=("join",), names=(A, B), domain=TRAFFIC, **fields):
    pipelines = [load_pipeline(name) for name in names]
    changed = workload.model_copy(update=fields)
    return new_request(changed, pipelines, stages, domain, interleave=True)


def test_blocks_take_turns_so_that_drift_cancels():
    turns = asked().interleaved
    assert turns == Interleaving(block_s=6, first_s=10, edge_s=1, order=(A, B, B, A))
    # From the measured phase on, after 10 s.
    assert [turns.turn(second) for second in (10, 15, 16, 27, 28, 33, 34)] == [A, A, B, B, A, A, A]
    assert [turns.turn(second) for second in (0, 3, 4, 9)] == [B, B, A, A]


def test_a_block_is_longer_than_two_of_the_longest_windows():
    assert asked(stages=("sliding",), windows={}).interleaved.block_s == 6
    of_ten_s = asked(stages=("tumbling",), windows={"tumbling_s": 10, "sliding_s": 30})
    assert (of_ten_s.interleaved.block_s, of_ten_s.interleaved.edge_s) == (20, 1)


def test_a_window_that_event_time_closes_stays_away_from_the_end_of_a_block():
    names = ("spark-microbatch-builtin", "calibration")
    found = asked(stages=("revenue",), names=names, domain=GEM_PACKS).interleaved
    window = GEM_PACKS.stage("revenue").window
    assert GEM_PACKS.stage("revenue").complete is None
    assert found.edge_s == 1 + window.size_s
    assert found.block_s == 4 * found.edge_s


def test_each_pipeline_reads_topics_of_its_own():
    request = asked()
    assert request.input_topics == (
        f"traffic.flow.{A}",
        f"traffic.speed.{A}",
        f"traffic.flow.{B}",
        f"traffic.speed.{B}",
    )
    start_offsets = dict.fromkeys(request.input_topics, (7,))
    plan = RunPlan(request=request, start_offsets=start_offsets)
    told = engine_plan(plan, request.pipelines[1], "folder", ServiceSettings(), "127.0.0.1:9092")
    assert told.domain.topics == (f"traffic.flow.{B}", f"traffic.speed.{B}")
    assert told.start_offsets == {f"traffic.flow.{B}": (7,), f"traffic.speed.{B}": (7,)}
    again = RunRequest.model_validate_json(request.model_dump_json())
    assert again.shares == request.shares


def test_pipelines_of_one_run_on_the_same_input_are_no_pipelines_of_one_in_turns():
    request = asked()
    beside = request.model_copy(update={"interleaved": None})
    assert beside.input_topics == ("traffic.flow", "traffic.speed")
    assert beside.shares == (beside,)
    plans = [RunPlan(request=one, start_offsets={}) for one in (request, beside)]
    assert plans[0].request.served != plans[1].request.served


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"names": (A,)}, "two pipelines: --pipeline A,B"),
        ({"names": (A, B, "calibration")}, "two pipelines: --pipeline A,B"),
        (
            {"load": Sine(rate_per_second=4, amplitude_per_second=1, period_s=9)},
            "a load of the shape 'constant'",
        ),
        ({"transport": "tcp"}, "records sent directly to Kafka"),
        ({"pipelines_start_s": 5}, "pipelines that start before the load"),
    ],
)
def test_what_cannot_be_measured_in_turns_is_refused(fields, reason):
    with pytest.raises(DefinitionError) as refused:
        asked(**fields)
    assert str(refused.value) == f"--interleave needs {reason}."


def test_turns_are_of_the_pipelines_of_the_run():
    fields = asked().model_dump() | {"interleaved": {"block_s": 6, "order": [A, "other"]}}
    with pytest.raises(ValidationError, match="must name exactly the pipelines of the run"):
        RunRequest.model_validate(fields)
