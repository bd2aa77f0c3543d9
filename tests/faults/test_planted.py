"""The cause that a live run reports for a planted slowdown."""

import json
from collections.abc import Iterator

import pytest

from tests.faults.breakable_stack import BreakableStack, breakable_stack
from tests.faults.planted import (
    KINDS,
    RATE,
    SEND_DELAY_ALLOWED_MS,
    Kind,
    capped,
    names_it,
    planted_run,
)

pytestmark = pytest.mark.faults
SEARCH = f"""
name = "capped"
summary = "-"
stages = ["parse"]
keep_up_s = 4
[load]
shape = "constant"
rate_per_second = {RATE}
[phases]
warm_up_s = 3
measure_s = 8
[search]
step_warm_up_s = 3
step_s = 8
confirm_s = 8
max_steps = 2
[validity]
max_send_delay_p99_ms = {SEND_DELAY_ALLOWED_MS}
max_clock_behind_ms = 30_000
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path_factory.mktemp("stack")) as found:
        yield found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_run_names_what_was_planted(stack: BreakableStack, kind: Kind) -> None:
    report = planted_run(stack, kind.name)
    assert names_it(report, kind), (report["steady"], report["late"])


def test_a_search_on_a_capped_generator_is_limited_by_the_generator(
    stack: BreakableStack,
) -> None:
    data = stack.settings.data
    workload, report = data / "capped.toml", data / "capped.json"
    workload.write_text(SEARCH)
    with capped(stack):
        done = stack.tidegauge(
            *("run", str(workload), "--pipeline", "calibration", "--report", str(report))
        )
    found = json.loads(report.read_text())["conclusion"]["search"]
    assert found["limited_by"] == "generator", done.stdout + done.stderr
    assert "Limited by the generator, not by the pipeline." in done.stdout.replace("\n", " ")
