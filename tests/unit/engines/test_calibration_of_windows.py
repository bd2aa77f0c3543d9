"""Outputs of a calibration pipeline for purchases and ads: window joins and closed windows."""

import pytest
from faults import Outputs, address_number
from stages.reading import READ_MS

from schemas.domain import DomainSpec
from tests.gem_packs import GEM_PACKS, IN_SECONDS
from tests.unit.engines.rows import plan_of

pytestmark = pytest.mark.unit

CODEC = IN_SECONDS.codec
PURCHASES, ADS = "gem_packs.purchases", "gem_packs.ads"
RECORDS = {PURCHASES: "gem_packs_purchase", ADS: "gem_packs_ad"}
# A cell and its country, and a cell of another country.
TABLE = GEM_PACKS.stage("enriched").table
assert TABLE is not None
GEO, (COUNTRY,) = next(iter(TABLE.rows.items()))
OTHER = next(geo for geo, row in TABLE.rows.items() if row != (COUNTRY,))


class Feed:
    """Appends records one by one."""

    def __init__(self, folder, *stages: str, domain: DomainSpec = GEM_PACKS) -> None:
        plan = plan_of(domain, folder, *stages, wire_format="avro")
        self.stages, self.sequence = Outputs(plan), 0

    def add(self, topic, time_ms, appended_ms, price=10.0, user="u", pack="p", geo=GEO):
        fields = {
            "user_id": user, "gem_pack_id": pack, "price": price, "geo": geo, "time": time_ms,
            "sequence": self.sequence, "run_id": "r", "scheduled_at": 1000 * time_ms,
        }  # fmt: skip
        self.sequence += 1
        value = CODEC.encode(RECORDS[topic], fields)
        return self.read(self.stages.read(topic, pack.encode(), value, appended_ms, (0, 0)))

    def closed(self, now_ms):
        return self.read(self.stages.tick(now_ms - READ_MS))

    def read(self, made):
        return [
            (one.stage["name"], one.due_ms, one.key, CODEC.decode(one.value)[1]) for one in made
        ]


def test_a_purchase_and_an_ad_are_joined_in_every_window_that_both_are_in(tmp_path):
    feed = Feed(tmp_path, "conversions")
    assert feed.add(PURCHASES, 9_000, 100, price=3.5) == []
    assert feed.add(ADS, 9_000, 110, user="other") == []
    found = feed.add(ADS, 11_900, 120, price=7.0)
    row = {"run_id": "r", "user_id": "u", "gem_pack_id": "p", "purchase": 0, "ad": 2, "price": 3.5}
    assert found == [
        ("conversions", 120, b"p", row | {"window_start": 8_000, "window_end": 16_000}),
        ("conversions", 120, b"p", row | {"window_start": 4_000, "window_end": 12_000}),
    ]
    # In one window only, and with both ads in it.
    found = feed.add(PURCHASES, 15_000, 130, price=4.0)
    assert [(row["ad"], row["window_start"]) for *_, row in found] == [(2, 8_000)]


def test_a_record_that_is_late_for_a_window_is_not_joined_in_it(tmp_path):
    feed = Feed(tmp_path, "conversions")
    feed.add(PURCHASES, 9_000, 100)
    feed.add(ADS, 12_000, 200, user="other")
    feed.add(PURCHASES, 12_000, 300, user="another")  # passes the end of the first window
    windows = [
        [row["window_start"] for *_, row in feed.add(ADS, 9_500, appended_ms)]
        for appended_ms in (1_300, 1_301)
    ]
    assert windows == [[8_000, 4_000], [8_000]]


def test_a_pair_has_the_number_of_its_sequences_and_window(tmp_path):
    feed = Feed(tmp_path, "conversions")
    feed.add(ADS, 9_000, 1)
    purchase = {
        "user_id": "u", "gem_pack_id": "p", "price": 1.0, "geo": GEO, "time": 9_000,
        "sequence": 7, "run_id": "r", "scheduled_at": 0,
    }  # fmt: skip
    value = CODEC.encode("gem_packs_purchase", purchase)
    one, two = feed.stages.read(PURCHASES, b"p", value, 2, (0, 0))
    assert (one.number, two.number) == (address_number(7, 0, 8_000), address_number(7, 0, 4_000))
    wrong = CODEC.decode(feed.stages.corrupted(one))[1]
    assert wrong == CODEC.decode(one.value)[1] | {"price": 2.0}


def test_a_window_is_closed_a_second_after_event_time_has_passed_its_end_in_every_input(tmp_path):
    feed = Feed(tmp_path, "average", domain=IN_SECONDS)
    assert feed.add(PURCHASES, 5_100, 100, price=4.0) == []
    assert feed.add(PURCHASES, 5_900, 200, price=8.0) == []
    assert feed.add(ADS, 7_000, 300) == []  # the average is over purchases only
    assert feed.add(PURCHASES, 5_950, 350, price=6.0, geo=OTHER) == []
    assert feed.add(PURCHASES, 6_000, 400) == []
    assert feed.add(PURCHASES, 5_999, 1_400, price=3.0) == []  # appended in time
    assert feed.add(PURCHASES, 5_999, 1_401, price=99.0) == []  # too late
    assert feed.closed(1_400) == []
    found = feed.closed(1_500)
    row = {"run_id": "r", "window_start": 5_000, "window_end": 6_000}
    assert found == [
        ("average", 1_400, GEO.encode(), row | {"geo": GEO, "average_price": 5.0}),
        ("average", 1_400, OTHER.encode(), row | {"geo": OTHER, "average_price": 6.0}),
    ]
    assert feed.closed(5_000) == []
    # Without a record for a deadline, and a second.
    assert feed.closed(11_400) == []
    assert [row["window_start"] for *_, row in feed.closed(11_500)] == [6_000]


def test_a_window_of_a_quiet_key_stays_open_while_other_keys_have_records(tmp_path):
    feed = Feed(tmp_path, "average", domain=IN_SECONDS)
    feed.add(PURCHASES, 5_100, 100, price=4.0)
    feed.add(PURCHASES, 5_100, 9_000, geo=OTHER)
    assert feed.closed(19_900) == []
    feed.add(PURCHASES, 5_100, 8_000, price=8.0)
    found = feed.closed(20_100)
    assert {(due_ms, row["geo"], row["average_price"]) for _, due_ms, _, row in found} == {
        (20_000, GEO, 6.0),
        (20_000, OTHER, 10.0),
    }


def test_a_window_is_the_same_whatever_partition_is_read_first(tmp_path):
    late = (PURCHASES, 5_990, 1_401, 99.0)
    given = [(PURCHASES, 5_100, 100, 4.0), (PURCHASES, 6_000, 400, 1.0), late]
    given += [(PURCHASES, 7_500, 900, 1.0), (ADS, 6_500, 300, 1.0)]
    for rows in (given, given[::-1]):
        feed = Feed(tmp_path, "average", domain=IN_SECONDS)
        for topic, time_ms, appended_ms, price in rows:
            assert feed.add(topic, time_ms, appended_ms, price=price) == []
        assert [
            (due_ms, row["window_start"], row["average_price"])
            for _, due_ms, _, row in feed.closed(2_000)
        ] == [(1_400, 5_000, 4.0), (1_900, 6_000, 1.0)]


def test_both_inputs_must_have_passed_the_end_where_both_count(tmp_path):
    feed = Feed(tmp_path, "peak", domain=IN_SECONDS)
    feed.add(PURCHASES, 5_100, 100, price=4.0)
    feed.add(ADS, 5_200, 110, price=5.0)
    feed.add(PURCHASES, 6_000, 200)
    assert feed.closed(3_000) == []
    feed.add(ADS, 6_500, 3_000)
    ((_, due_ms, _, row),) = feed.closed(4_100)
    assert (due_ms, row["highest_price"], row["window_end"]) == (4_000, 5.0, 6_000)
    # A window with a record of one input only has no output.
    feed.add(PURCHASES, 9_000, 5_000)
    feed.add(ADS, 9_000, 5_000)
    assert [row["window_start"] for *_, row in feed.closed(6_100)] == [6_000]


def test_a_sliding_sum_counts_a_record_in_each_of_its_windows(tmp_path):
    feed = Feed(tmp_path, "revenue")
    feed.add(PURCHASES, 9_000, 10, price=1.5)
    feed.add(PURCHASES, 13_000, 20, price=2.0)
    feed.add(PURCHASES, 13_000, 25, price=2.0)  # every record counts
    feed.add(PURCHASES, 16_000, 30)
    found = {(row["window_start"], row["revenue"]) for *_, row in feed.closed(1_100)}
    assert found == {(4_000, 1.5), (8_000, 5.5)}


def test_the_average_of_dear_offers_goes_through_five_stages(tmp_path):
    feed = Feed(tmp_path, "enriched", "offers", "dear", "dear_average", domain=IN_SECONDS)
    ((stage, _, key, row),) = feed.add(PURCHASES, 5_000, 10, price=150.0)
    assert (stage, key, row["country"]) == ("enriched", b"p", COUNTRY)
    assert feed.add(PURCHASES, 5_000, 10, geo="nowhere") == []  # the table has no such cell
    found = feed.add(ADS, 5_000, 20, price=90.0, user="v", pack="q")
    offer = {
        "run_id": "r", "country": COUNTRY, "time": 5_000, "window_start": 5_000,
        "window_end": 6_000, "purchase": 0, "ad": 2, "price": 150.0,
    }  # fmt: skip
    assert [one for one in found if one[0] == "offers"] == [
        ("offers", 20, str(COUNTRY).encode(), offer)
    ]
    assert [one[0] for one in found] == ["enriched", "offers", "dear"]
    feed.add(PURCHASES, 5_300, 30, price=50.0)
    assert [one[0] for one in feed.add(ADS, 5_300, 31, price=60.0)] == ["enriched", "offers"]
    feed.add(ADS, 5_000, 32, price=200.0)
    feed.add(PURCHASES, 6_000, 40)
    feed.add(ADS, 6_000, 50)
    ((stage, due_ms, key, row),) = feed.closed(1_100)
    assert (stage, due_ms, key) == ("dear_average", 1_050, str(COUNTRY).encode())
    assert row["average_price"] == 175.0


def test_an_average_of_sliding_windows_has_the_pairs_of_each_that_ends_in_its_own(tmp_path):
    feed = Feed(tmp_path, "offers", "dear_average")
    starts = {}
    for number, (time_ms, price) in enumerate(((5_000, 110.0), (9_000, 120.0), (13_000, 170.0))):
        feed.add(PURCHASES, time_ms, 10 * number, price=price)
        found = feed.add(ADS, time_ms, 10 * number + 5, price=1.0)
        starts[price] = [row["window_start"] for *_, row in found]
    assert starts == {
        110.0: [4_000, 0],
        120.0: [8_000, 4_000],
        170.0: [12_000, 8_000],
    }
    feed.add(PURCHASES, 60_000, 100)
    feed.add(ADS, 60_000, 110)
    # The joins of 0 to 8, 4 to 12, 8 to 16 and 12 to 20 s have 110; 110, 120; 120, 170; and 170.
    assert {row["window_start"]: row["average_price"] for *_, row in feed.closed(1_200)} == {
        0: 110.0,
        4_000: (110 + 110 + 120) / 3,
        8_000: (110 + 120 + 120 + 170) / 4,
        12_000: (120 + 170 + 170) / 3,
        16_000: 170.0,
    }


def test_what_does_not_decode_is_only_copied(tmp_path):
    feed = Feed(tmp_path, *GEM_PACKS.stage_names)
    (made,) = feed.stages.read(ADS, b"k", b"no record", 5, (0, 0))
    assert (made.stage["name"], made.number, made.key, made.value) == (
        "ingest",
        -1,
        b"k",
        b"no record",
    )
