"""The workloads and pipelines of the project match their models."""

import pytest

from services.runtime import definitions

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("name", definitions.names(definitions.WORKLOADS_DIR))
def test_every_workload_loads_under_its_own_name_and_says_what_it_measures(name):
    workload = definitions.load_workload(name)
    assert workload.name == name
    assert workload.measures
    assert workload.source


@pytest.mark.parametrize("name", definitions.names(definitions.PIPELINES_DIR))
def test_every_pipeline_loads_under_its_own_name(name):
    assert definitions.load_pipeline(name).name == name


def test_the_defaults_are_there():
    assert "latency" in definitions.names(definitions.WORKLOADS_DIR)
    assert "spark-realtime" in definitions.names(definitions.PIPELINES_DIR)
