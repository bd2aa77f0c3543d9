"""Which JVM beans belong to which stage, and their values."""

import math

import pytest

from services.spark_pipeline.progress import Bean, StageReading, bean_of, names_in, readings

pytestmark = pytest.mark.unit

GROUP = "engine.spark-realtime.20260101-000000-ab12"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
CLIENT = f"consumer-{GROUP}.join-{UUID}--1780-executor-3"
TYPE = "kafka.consumer:type=consumer-fetch-manager-metrics"


@pytest.mark.parametrize(
    ("name", "bean"),
    [
        (f"{TYPE},client-id={CLIENT}", Bean("join", CLIENT, "records-consumed-total")),
        (
            f'{TYPE},client-id={CLIENT},topic=traffic.flow,partition="0"',
            Bean("join", CLIENT, "records-lag"),
        ),
        # A topic's sums belong to its consumer; other clients belong to no stage.
        (f"{TYPE},client-id={CLIENT},topic=traffic.flow", None),
        (f"{TYPE},client-id=consumer-{GROUP}.join-{UUID}--1780-driver-0-1", None),
        (f"{TYPE},client-id=consumer-engine.other.run.join-{UUID}-5-executor-1", None),
        (f"{TYPE},client-id=admin", None),
    ],
)
def test_a_bean_is_of_the_stage_whose_consumer_it_names(name: str, bean: Bean | None) -> None:
    assert bean_of(name, GROUP) == bean


def test_names_are_taken_from_the_text_of_a_set() -> None:
    names = [f"{TYPE},client-id={CLIENT}", f'{TYPE},client-id={CLIENT},topic=t,partition="0"']
    assert names_in(f"[{', '.join(names)}]") == names
    assert names_in("[]") == []


def test_rows_are_those_since_the_reading_before_and_lags_add_up() -> None:
    first, second = (Bean("join", f"c{number}", "records-consumed-total") for number in (1, 2))
    lag = Bean("join", "c1", "records-lag")
    before: dict[str, float] = {}
    assert readings([(first, 100.0), (second, 20.0)], before) == {"join": StageReading(120, None)}
    found = readings([(first, 150.0), (second, 20.0), (lag, 7.0), (lag, 3.0)], before)
    assert found == {"join": StageReading(50, 10)}
    # A reopened consumer counts from 0 again; one that has read nothing has no lag.
    found = readings([(first, 30.0), (second, 25.0), (lag, math.nan)], before)
    assert found == {"join": StageReading(35, None)}
    assert readings([(first, 31.0)], before) == {"join": StageReading(1, None)}
