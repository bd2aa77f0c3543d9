"""The workloads and pipelines of the project match their models."""

import pytest

from services.definitions.pipelines import PIPELINES_DIR, load_pipeline, names
from services.definitions.workloads import WORKLOADS_DIR, load_workload

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("name", names(WORKLOADS_DIR))
def test_every_workload_loads_under_its_own_name_and_says_what_it_measures(name):
    workload = load_workload(name)
    assert workload.name == name
    assert workload.measures
    assert workload.source


@pytest.mark.parametrize("name", names(PIPELINES_DIR))
def test_every_pipeline_loads_under_its_own_name(name):
    assert load_pipeline(name).name == name


def test_the_defaults_are_there():
    assert "latency" in names(WORKLOADS_DIR)
    assert "spark-realtime" in names(PIPELINES_DIR)
