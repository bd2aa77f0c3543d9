"""A watch's process and its reader, without a bus and a cluster."""

import pytest

from services.runtime.settings import ServiceSettings
from services.watcher import position, process
from services.watcher.position import PublishedSince
from services.watcher.reading import WatchReader
from tests.unit.watcher.clusters import PLACE, Cluster, Time
from tests.unit.watcher.watches import Bus, Reader


@pytest.fixture
def bus(monkeypatch):
    found = Bus()
    monkeypatch.setattr(process, "AdminClient", lambda _: None)
    monkeypatch.setattr(process, "WatchReader", Reader)
    monkeypatch.setattr(process, "Events", lambda *_: found)
    monkeypatch.setattr(process, "event_producer", lambda *_: None)
    monkeypatch.setattr(process, "bounds_of", lambda _, places: dict.fromkeys(places, (0, 0)))
    monkeypatch.setattr(process, "environment", dict)
    monkeypatch.setattr(position, "bus_ends", lambda _: [])
    monkeypatch.setattr(position, "read_published", lambda *_: PublishedSince())
    monkeypatch.setattr("services.watcher.watching.STEP_S", 0.01)
    return found


@pytest.fixture
def at_s(monkeypatch):
    """Sets the start time of processes."""

    def set_time(seconds):
        monkeypatch.setattr(process, "now_ms", lambda: 1000 * seconds)

    set_time(1)
    return set_time


@pytest.fixture
def settings(tmp_path):
    return ServiceSettings(data=tmp_path)


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
