"""A watch's process and its reader, without a bus and a cluster."""

import pytest

from services.runtime.settings import ServiceSettings
from services.watcher.reading import WatchReader
from tests.unit.watcher.clusters import PLACE, Cluster, Time
from tests.unit.watcher.watches import Bus, Context


@pytest.fixture
def bus():
    return Bus()


@pytest.fixture
def context(bus, tmp_path):
    return Context(ServiceSettings(data=tmp_path), bus)


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def reader(cluster, clock):
    found = WatchReader(lambda: cluster, cluster, ("t",), clock)
    found.begin({PLACE: 42})
    return found
