"""What a run names when something else than usual takes time on purpose, live."""

from collections.abc import Iterator

import pytest

from tests.faults.breakable_stack import BreakableStack, breakable_stack
from tests.faults.planted import CAPPED, KINDS, Kind, names_it, planted_run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
CAPPED_KIND = "capped_generator"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path_factory.mktemp("stack")) as found:
        yield found


@pytest.fixture(scope="module")
def capped_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BreakableStack]:
    with breakable_stack(tmp_path_factory.mktemp("capped"), **CAPPED) as found:
        yield found


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind.name not in (CAPPED_KIND, "nothing")],
    ids=lambda k: k.name,
)
def test_a_run_names_what_was_planted(stack: BreakableStack, kind: Kind) -> None:
    report = planted_run(stack, kind.name)
    assert names_it(report, kind), report["late"]


def test_a_run_names_a_capped_generator(capped_stack: BreakableStack) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == CAPPED_KIND)
    report = planted_run(capped_stack, CAPPED_KIND)
    assert names_it(report, kind), report["late"]
    assert not report["valid"]
