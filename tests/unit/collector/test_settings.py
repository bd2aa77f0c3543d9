"""The scrape settings of the collector."""

import json

import pytest
from pydantic import ValidationError

from services.collector.settings import CollectorSettings
from services.collector.sources import Target

pytestmark = pytest.mark.unit
CADVISOR = {"url": "http://127.0.0.1:8080/metrics", "metrics": ["container_memory_*"]}


def test_targets_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_COLLECTOR_TARGETS", json.dumps({"cadvisor": CADVISOR}))
    settings = CollectorSettings(kafka_bootstrap="elsewhere:9092")
    assert settings.targets == {
        "cadvisor": Target(url="http://127.0.0.1:8080/metrics", metrics=("container_memory_*",))
    }


def test_the_local_broker_is_a_target_without_being_told(monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_COLLECTOR_TARGETS", json.dumps({"cadvisor": CADVISOR}))
    targets = CollectorSettings(base_port=18_000).targets
    assert list(targets) == ["broker", "cadvisor"]
    assert targets["broker"].url.startswith("http://127.0.0.1:18008/metrics?name%5B%5D=kafka_")


def test_nothing_is_scraped_of_a_broker_elsewhere_that_was_not_named():
    assert CollectorSettings(kafka_bootstrap="elsewhere:9092").targets == {}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080/metrics",
        "file:///etc/passwd",
        "ftp://127.0.0.1/metrics",
        "http:///metrics",
        "http://user:password@127.0.0.1/metrics",
        "http://127.0.0.1:0/metrics",
        "http://127.0.0.1:99999/metrics",
        "http://127.0.0.1/met rics",
        "http://127.0.0.1/metrics\r\nX: y",
        "http://[::1/metrics",
    ],
)
def test_a_target_is_a_plain_http_address(url):
    with pytest.raises(ValidationError, match="url"):
        CollectorSettings(collector_targets={"x": {"url": url}})


@pytest.mark.parametrize(
    "targets",
    [
        {"kafka": CADVISOR},
        {"": CADVISOR},
        {"a b": CADVISOR},
        {"x": CADVISOR | {"metrics": []}},
        {"x": CADVISOR | {"interval": 5}},
        {f"x{number}": CADVISOR for number in range(33)},
    ],
)
def test_what_cannot_be_is_refused_at_the_start(targets):
    with pytest.raises(ValidationError):
        CollectorSettings(collector_targets=targets)
