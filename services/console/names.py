"""Names that a shell completes, by what they name."""

from collections.abc import Callable, Iterable
from typing import Final

from services.console.checks import benchmark_names
from services.definitions.domains import domain_names
from services.definitions.engines import load_engines
from services.definitions.pipelines import PIPELINES_DIR, names
from services.definitions.workloads import STUDIES_DIR, SUITES_DIR, WORKLOADS_DIR


def _formats() -> Iterable[str]:
    from services.console.listing import FORMATS

    return FORMATS


NAMES: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "benchmark": benchmark_names,
    "domain": domain_names,
    "engine": load_engines,
    "format": _formats,
    "pipeline": lambda: names(PIPELINES_DIR),
    "study": lambda: names(STUDIES_DIR),
    "suite": lambda: names(SUITES_DIR),
    "workload": lambda: names(WORKLOADS_DIR),
}
