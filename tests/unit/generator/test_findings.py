"""What is said of a load."""

import pytest

from schemas.protocol import Load
from services.generator.findings import findings

pytestmark = pytest.mark.unit


def test_the_largest_delay_is_always_said():
    assert findings(Load(rate_per_second=1), 1_260) == ("The largest send delay was 1.3 ms.",)


def test_a_burst_says_by_how_much_it_missed_its_time():
    burst = Load(shape="periodic_burst", rate_per_second=1, burst_records=38_000, period_s=10)
    load = Load(shape="sum", parts=(burst, Load(rate_per_second=5)))
    assert findings(load, 4_200)[1] == (
        "Bursts of 38000 records within 175 ms left within 179.2 ms at most: 4.2 ms late."
    )


def test_trouble_is_passed_on():
    assert findings(Load(rate_per_second=1), 0, "no broker")[-1] == (
        "The Kafka client's last trouble: no broker."
    )
