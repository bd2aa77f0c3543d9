"""Contents of purchases and ads, and their reproducibility from a seed."""

import csv
import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.content import Content
from schemas.load import Replay
from schemas.validation_errors import DefinitionError
from services.definitions.domains import checked, content_of, load_domain
from services.definitions.pipelines import names
from services.definitions.workloads import changed, load_workload_of
from services.generator.runs import probe_set
from tests.unit.generator.made import START_MS, a_load, a_plan, decoded, messages_of, records_of

pytestmark = pytest.mark.unit

GEM_PACKS = load_domain("gem_packs")
WORKLOADS = names(GEM_PACKS.folder / "workloads")


def made(rate, seconds, **fields):
    return records_of(rate, seconds, domain=GEM_PACKS, **fields)


def pairs(records):
    each = [record for _, record in records]
    return list(zip(each[::2], each[1::2], strict=True))


def test_a_purchase_and_an_ad_make_a_pair_with_the_time_of_the_purchase():
    records = made(400, 1, seed=1)
    assert [name for name, _ in records] == ["purchases", "ads"] * 200
    assert records[4:6] == [
        (
            "purchases",
            {
                "user_id": "user-550",
                "gem_pack_id": "pack-36",
                "price": 160.96,
                "geo": "g053",
                "time": START_MS + 10,
                "sequence": 4,
                "run_id": "r1",
                "scheduled_at": (START_MS + 10) * 1000,
            },
        ),
        (
            "ads",
            {
                "user_id": "user-550",
                "gem_pack_id": "pack-36",
                "price": 78.52,
                "geo": "g053",
                "time": START_MS + 10,
                "sequence": 5,
                "run_id": "r1",
                "scheduled_at": START_MS * 1000 + 12_500,
            },
        ),
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"seed": 1}, "febc684d61dbaaebd9f44b83d0da9ca3"),
        ({"seed": 2}, "2214eacfc8fec9191bab6c01c7fbc052"),
        (
            {"seed": 1, "content": {"distribution": "zipf", "second_ms": 50}},
            "c487090d84af5fce210df672653144ea",
        ),
        (
            {"seed": 1, "faults": {"late": 0.2, "impossible": 0.2}},
            "c2e6b5290da3ab8ee5e18034290f773a",
        ),
    ],
)
def test_a_load_has_the_same_bytes_for_ever(fields, expected):
    found = hashlib.sha256()
    for message in messages_of(a_load(500, 3, domain=GEM_PACKS, **fields), 25_000):
        found.update(repr(message).encode())
    assert found.hexdigest()[:32] == expected


@given(st.integers(1, 4), st.integers(1, 60), st.sampled_from([1, 7, 250.5, 800]))
@settings(max_examples=15, deadline=None)
def test_shards_and_slices_change_no_record(count, limit, rate):
    shards = [made(rate, 2, limit=limit, shard=(index, count)) for index in range(count)]
    together = sorted((one for shard in shards for one in shard), key=lambda o: o[1]["sequence"])
    assert together == made(rate, 2)
    for index, shard in enumerate(shards):
        assert {record["sequence"] // 2 % count for _, record in shard} <= {index}


@pytest.mark.parametrize(
    ("match", "shares"), [(0, (0.0, 0.0)), (0.3, (0.28, 0.32)), (1, (1.0, 1.0))]
)
def test_so_many_purchases_answer_the_ad_of_their_pair(match, shares):
    # With ten million users two draws are never equal.
    found = pairs(made(10_000, 1, content={"match": match, "users": 10_000_000}))
    same = [
        (p["user_id"], p["gem_pack_id"], p["geo"]) == (a["user_id"], a["gem_pack_id"], a["geo"])
        for p, a in found
    ]
    assert shares[0] <= sum(same) / len(same) <= shares[1]


def counts_of(**content):
    records = made(20_000, 1, content={"match": 0, "packs": 4} | content)
    return Counter(record["gem_pack_id"] for _, record in records)


def test_packs_are_drawn_as_the_distribution_says():
    assert counts_of(distribution="single") == {"pack-0": 20_000}
    uniform = counts_of(distribution="uniform")
    assert [uniform[f"pack-{n}"] for n in range(4)] == pytest.approx([5_000] * 4, rel=0.05)
    # 1, 1/2, 1/3, 1/4 of 25/12.
    zipf = counts_of(distribution="zipf")
    assert [zipf[f"pack-{n}"] for n in range(4)] == pytest.approx(
        [9600, 4800, 3200, 2400], rel=0.06
    )
    # exp(-0.5 * 2.5 ** 2) and exp(-0.5 * 0.8333 ** 2): 0.0439 and 0.7066, of 1.501.
    normal = counts_of(distribution="normal")
    assert [normal[f"pack-{n}"] for n in (1, 2)] == pytest.approx([9_415] * 2, rel=0.05)
    assert [normal[f"pack-{n}"] for n in (0, 3)] == pytest.approx([585] * 2, rel=0.15)


def test_prices_are_whole_cents_from_1_to_200_euros():
    prices = [record["price"] for _, record in made(20_000, 1)]
    assert 1 <= min(prices) < 1.1
    assert 199.9 < max(prices) <= 200
    assert sum(prices) / len(prices) == pytest.approx(100.5, rel=0.01)
    assert all(round(price * 100) / 100 == price for price in prices)


def test_a_user_has_one_geo_which_the_table_of_countries_knows():
    geos = {}
    for _, record in made(20_000, 1):
        geos.setdefault(record["user_id"], set()).add(record["geo"])
    assert {len(found) for found in geos.values()} == {1}
    with (GEM_PACKS.folder / "countries.csv").open() as file:
        known = {row["geo"] for row in csv.DictReader(file)}
    assert set.union(*geos.values()) == known


def test_event_time_runs_ahead_with_shorter_seconds():
    times = [record["time"] - START_MS for _, record in made(4, 2, content={"second_ms": 50})]
    assert times == [0, 0, 10_000, 10_000, 20_000, 20_000, 30_000, 30_000]


def test_an_impossible_record_has_a_price_below_zero():
    records = made(1_000, 1, faults={"impossible": 0.5})
    prices = Counter(record["price"] == -1 for _, record in records)
    assert 400 < prices[True] < 600
    assert all(record["price"] == -1 or record["price"] >= 1 for _, record in records)


def test_a_probe_set_passes_every_stage():
    plan = a_plan(2, domain=GEM_PACKS)
    (_, key, purchase), (_, _, ad) = (
        (topic, key, decoded(GEM_PACKS.spec, topic, value)[1])
        for topic, key, value in probe_set(plan, 3, 1_700_000_000_750_000)
    )
    assert key == b"probe-3"
    assert (purchase["user_id"], purchase["gem_pack_id"], purchase["geo"], purchase["time"]) == (
        ad["user_id"],
        ad["gem_pack_id"],
        ad["geo"],
        ad["time"],
    )
    assert min(purchase["price"], ad["price"]) > 100
    table = GEM_PACKS.spec.stage("enriched").table
    assert table.rows[purchase["geo"]] == ("Austria",)


@pytest.mark.parametrize("name", WORKLOADS)
def test_its_workloads_are_of_the_domain(name):
    workload = checked(load_workload_of(GEM_PACKS, name), GEM_PACKS)
    assert (workload.name, workload.domain) == (name, "gem_packs")
    assert set(workload.stages) <= set(GEM_PACKS.spec.stage_names)
    GEM_PACKS.spec.resolved(workload.windows)


def test_the_workloads_are_those_of_the_papers_and_one_to_see_that_all_works():
    assert WORKLOADS == ("global-window", "large-windows", "latency", "queries", "skew", "smoke")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"geos": 101}, r"content\.geos: It must be at most 100"),
        ({"source": "sample"}, r"content\.source: .*domain"),
        ({"keys": {"distribution": "zipf"}}, r"content\.keys: There is no such field"),
        ({"columns": {"geo": "g"}}, r"content: columns applies only to a file"),
    ],
)
def test_an_option_that_it_does_not_have_is_refused(content, reason):
    with pytest.raises(DefinitionError, match=reason):
        content_of(GEM_PACKS, Content(**content))


def test_copies_are_refused_unless_the_load_is_a_replay():
    workload = load_workload_of(GEM_PACKS, "smoke")
    workload = workload.model_copy(update={"content": Content(copies=2)})
    with pytest.raises(DefinitionError, match=r"content\.copies applies only to a load of the sha"):
        checked(workload, GEM_PACKS)
    replay = workload.model_copy(update={"load": Replay()})
    assert checked(replay, GEM_PACKS).content.copies == 2


def test_a_replay_is_refused_for_there_are_no_recorded_times():
    with pytest.raises(ValueError, match="these records have none"):
        a_plan(Replay(), domain=GEM_PACKS)


def test_a_workload_whose_load_is_changed_gives_no_windows_of_another_domain():
    workload = changed(load_workload_of(GEM_PACKS, "smoke"), 200, 5, 1)
    assert GEM_PACKS.spec.resolved(workload.windows) == GEM_PACKS.spec
