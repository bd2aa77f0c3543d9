"""Invalid watch files."""

import pytest
from pydantic import ValidationError

from schemas.validation_errors import first_mistake
from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit

WINDOW = {"kind": "window"}
TIMED = [{"topic": "in", "time": "header.at"}]
SPANNED = [{"topic": "out", "start": "header.from", "end": "header.to"}]


def test_windows_are_by_times_of_inputs_and_outputs():
    watch = a_watch(inputs=TIMED, outputs=SPANNED, relation=WINDOW)
    assert [one.times for one in (*watch.inputs, *watch.outputs)] == [
        ("header.at",),
        ("header.from", "header.to"),
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"relation": WINDOW}, "in needs time"),
        ({"relation": WINDOW, "inputs": TIMED}, "out needs start and end"),
        (
            {"relation": WINDOW, "inputs": TIMED, "outputs": [SPANNED[0] | {"end": ""}]},
            "out needs start and end",
        ),
        (
            {"relation": WINDOW, "inputs": TIMED, "outputs": [SPANNED[0] | {"time": "key"}]},
            "out needs start and end",
        ),
        ({"relation": WINDOW, "inputs": [TIMED[0] | {"end": "key"}]}, "in needs time"),
        ({"inputs": TIMED}, "in needs time if and only if kind = 'window'"),
        (
            {"outputs": SPANNED},
            "out needs start and end, or key_window, if and only if kind = 'window'",
        ),
        ({"relation": {"windows": 2}}, "windows requires kind = 'window'"),
        ({"inputs": [{"topic": "in", "time": "value.at"}]}, "a format other than bytes"),
    ],
)
def test_times_are_for_windows_and_all_there(fields, why):
    with pytest.raises(ValidationError, match=why):
        a_watch(**fields)


@pytest.mark.parametrize("topic", ["_orders", ".orders", "-orders", "o" * 249])
def test_every_name_that_kafka_allows_is_a_topic(topic):
    assert a_watch(inputs=[{"topic": topic}]).topics() == (topic, "out")


@pytest.mark.parametrize("topic", ["", "o" * 250, "a b", "^orders"])
def test_other_names_of_topics_are_refused(topic):
    with pytest.raises(ValidationError) as raised:
        a_watch(inputs=[{"topic": topic}])
    allowed = "Allowed: 1 to 249 characters of A-Z a-z 0-9 . _ -"
    assert first_mistake(raised.value).startswith(f"inputs.0.topic: {allowed}")


@pytest.mark.parametrize(
    "url", ["https://me:secret@registry:8081", "http://me@registry", "https://:1", "http://[::1"]
)
def test_a_login_is_not_in_the_address_of_a_registry(url):
    with pytest.raises(ValidationError, match="login in user and password") as raised:
        a_watch(registry={"url": url})
    assert "secret" not in str(raised.value)


def test_an_address_of_a_registry_has_a_host_and_may_have_a_path():
    url = "https://registry:8081/apis/ccompat@v7"
    assert a_watch(registry={"url": url}).public()["registry"] == {"url": url}


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("ssl.key.pem", "x", True),
        ("ssl.keystore.key", "x", True),
        ("any", "-----BEGIN PRIVATE KEY-----\nx", True),
        ("any", "-----BEGIN EC PRIVATE KEY-----", True),
        ("ssl.key.location", "/key.pem", False),
        ("ssl.certificate.pem", "-----BEGIN CERTIFICATE-----", False),
    ],
)
def test_a_private_key_is_a_secret(name, value, is_secret):
    watch = a_watch(kafka={"bootstrap": "k:9", "properties": {name: value}})
    assert watch.cluster.has_secrets == is_secret


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("p99_ms <= 500", "output.p99_ms <= 500"),
        ("missing <= 0  # none", "output.missing <= 0 # none"),
        ("w: p50_ms<5", "w: output.p50_ms<5"),
        ("*.not_exact == 0", "*.not_exact == 0"),
        ("output.latest.p99_ms <= 5", "output.latest.p99_ms <= 5"),
        ("visible.p99_ms <= 900", "output.visible.p99_ms <= 900"),
        ("w: visible.p99_ms <= 900", "w: output.visible.p99_ms <= 900"),
        ("input.records_per_second >= 0.5", "input.records_per_second >= 0.5"),
    ],
)
def test_a_threshold_without_a_stage_is_of_the_only_one(line, text):
    assert [one.text for one in a_watch(thresholds=[line]).limits] == [text]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("pipeline.cpu_cores <= 1", "a one_to_one watch has no pipeline.cpu_cores; it has: min_ms"),
        ("output.event_time.p99_ms <= 1", "a one_to_one watch has no event_time.p99_ms"),
        ("mean.p50_ms <= 1", "a one_to_one watch has no mean.p50_ms"),
        ("visible.missing <= 0", "missing is not a latency, so it has no visible"),
        ("wrong <= 0", "a one_to_one watch has no wrong"),
        ("input.send_delay_p99_ms <= 3", "a one_to_one watch has no input.send_delay_p99_ms"),
        ("shop: p99_ms <= 1", "the pipeline of this watch is w"),
        ("join.p99_ms <= 1", "the stage of this watch is output"),
        ("p99_ms <= 1.1 * baseline", "a watch has neither baseline nor abort"),
        ("p99_ms <= 5 abort", "a watch has neither baseline nor abort"),
        ("p99 <= 5", "output has no figure 'p99'"),
        ("p99_ms = 5", "is not a threshold"),
    ],
)
def test_a_threshold_that_no_run_of_a_watch_can_have_is_refused(line, why):
    with pytest.raises(ValidationError, match=why):
        a_watch(thresholds=[line])


def test_a_stage_may_be_named_as_a_latency():
    (limit,) = a_watch(stage="visible", thresholds=["visible.p99_ms <= 5"]).limits
    assert (limit.subject, limit.definition) == ("visible", "latest")


def test_a_filter_has_no_missing_outputs_to_limit():
    with pytest.raises(ValidationError, match="a filter watch has no missing"):
        a_watch(relation={"kind": "filter"}, thresholds=["missing <= 0"])


def test_a_threshold_on_the_lag_of_groups_needs_groups():
    (limit,) = a_watch(groups=["app"], thresholds=["group.lag_seconds <= 30"]).limits
    assert limit.is_of_groups
    with pytest.raises(ValidationError, match="names no consumer groups"):
        a_watch(thresholds=["group.lag_seconds <= 30"])


def test_a_stage_may_be_called_group():
    limits = a_watch(
        stage="group", groups=["app"], thresholds=["p99_ms <= 5", "group.lag_records <= 5"]
    ).limits
    assert [each.is_of_groups for each in limits] == [False, True]
