"""How much probe traffic is sent, and when its windows close."""

import pytest

from schemas.records import probe_time_ms
from services.generator.probe import sets_per_second
from services.runtime.domains import load_domain

pytestmark = pytest.mark.unit

NOW_MS = 1_700_000_000_750
GEM_PACKS = load_domain("gem_packs").spec


def test_fewer_sets_are_sent_when_each_has_more_records():
    assert [sets_per_second(records, 60) for records in (2, 6, 12, 600)] == [60, 60, 30, 1]


def test_each_set_is_later_than_the_one_before_by_the_longest_window():
    times_ms = [probe_time_ms(GEM_PACKS, number, NOW_MS) for number in range(3)]
    # 212,500,000 windows of 8 s have passed; the first set is 100,000 of them ago.
    assert times_ms == [1_699_200_000_000, 1_699_200_008_000, 1_699_200_016_000]


def test_windows_of_a_day_begin_at_half_of_all_days_since_1970():
    days = GEM_PACKS.resolved({"revenue_s": 86_400, "revenue_slide_s": 86_400})
    assert probe_time_ms(days, 0, NOW_MS) == 86_400_000 * (19_675 - 9_837)


def test_sets_beyond_the_last_step_have_the_time_of_now():
    assert probe_time_ms(GEM_PACKS, 200_000, NOW_MS) == 1_700_000_000_000
