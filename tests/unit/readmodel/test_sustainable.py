"""The load of a workload at a share of the sustainable rate."""

from dataclasses import dataclass, field

import pytest

from schemas.load import Fluctuating
from schemas.validation_errors import DefinitionError
from schemas.workload import Workload
from services.definitions.pipelines import at_workers
from services.readmodel.history import at_sustainable_share
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit


@dataclass
class Rates:
    """A store with sustainable rates by pipeline, and the rates above that were not; asked:
    parameters of the last query."""

    known: dict[str, float] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    above: float | None = None

    def __call__(self, _url: str, _sql: str, /, **parameters: str) -> list[dict[str, float | None]]:
        self.asked = parameters
        rate = self.known.get(parameters["pipeline"])
        row = {"rate_per_second": rate, "not_sustained_per_second": self.above}
        return [] if rate is None else [row]


def test_the_rate_is_the_share_of_the_lowest_rate_that_was_found() -> None:
    rates = Rates({"one": 5000.0, "two": 8000.0})
    request = a_request("one", "two")
    workload = request.workload.model_copy(update={"sustainable_share": 0.9})
    found = at_sustainable_share(request.model_copy(update={"workload": workload}), "", rates)
    assert found.workload.load.rate_per_second == 4500


@pytest.mark.parametrize(
    ("above", "share", "rate"), [(6000.0, 1.2, 7200), (None, 1.2, 6000), (6000.0, 1.0, 5000)]
)
def test_an_overload_is_a_share_of_the_lowest_rate_that_was_not_sustained(
    above: float | None, share: float, rate: float
) -> None:
    request = a_request("one")
    workload = request.workload.model_copy(update={"sustainable_share": share})
    request = request.model_copy(update={"workload": workload})
    overload = at_sustainable_share(request, "", Rates({"one": 5000.0}, above=above))
    assert overload.workload.load.rate_per_second == rate


def test_without_a_rate_that_was_found_there_is_one_sentence() -> None:
    rates = Rates()
    request = a_request("one")
    workload = request.workload.model_copy(update={"sustainable_share": 0.9})
    with pytest.raises(DefinitionError, match="No sustainable rate is known for one"):
        at_sustainable_share(request.model_copy(update={"workload": workload}), "", rates)


def test_only_a_rate_of_the_same_machine_domain_and_workers_counts() -> None:
    rates = Rates({"one": 5000.0})
    request = a_request("one")
    workload = request.workload.model_copy(
        update={
            "sustainable_share": 0.9,
            "transport": "tcp",
            "partitions": 4,
            "windows": {"tumbling_s": 60, "sliding_s": 30},
        }
    )
    pipeline = at_workers(request.pipelines[0], 3).model_copy(update={"cores": 1.5})
    machine = {"processor": "a processor", "cores": 8}
    changes = {"workload": workload, "pipelines": (pipeline,), "environment": machine}
    at_sustainable_share(request.model_copy(update=changes), "", rates)
    assert rates.asked == {
        "pipeline": "one",
        "stages": ",".join(sorted(request.stages)),
        "workers": "shuffle_partitions=3",
        "core_limit": "1.5",
        "domain": "traffic",
        "format": "avro",
        "transport": "tcp",
        "partitions": "4",
        "windows": "sliding_s=30,tumbling_s=60",
        "processor": "a processor",
        "cores": "8",
    }


def test_a_load_that_fluctuates_keeps_its_proportions() -> None:
    load = Fluctuating(rate_per_second=1_200, low_rate_per_second=400, period_s=20)
    request = a_request("one")
    fields = request.workload.model_dump() | {"load": load.model_dump()}
    workload = Workload.model_validate(fields | {"sustainable_share": 0.84})
    request = request.model_copy(update={"workload": workload})
    changed = at_sustainable_share(request, "", Rates({"one": 5000.0})).workload.load
    assert changed == Fluctuating(rate_per_second=4_200, low_rate_per_second=1_400, period_s=20)
