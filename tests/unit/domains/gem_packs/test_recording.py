"""Recorded purchases and ads: the records of a load against a brute force over their files."""

import json
import math
import random
from collections import Counter
from itertools import pairwise

import pytest

from schemas.load import Replay
from schemas.validation_errors import DefinitionError
from services.definitions.domains import load_domain
from services.definitions.row_files import InputError
from services.generator.look import looked
from tests.unit.generator.made import START_MS, a_plan, a_request, records_of

pytestmark = pytest.mark.unit

GEM_PACKS = load_domain("gem_packs")
NOON_MS = 1_767_268_800_000
SALE = {"user_id": "u1", "gem_pack_id": "p1", "price": 2.5, "geo": "g001", "time": NOON_MS}


def made(path, load, seconds, shard=(0, 1), **content):
    content = {"source": "file", "path": str(path)} | content
    return records_of(load, seconds, domain=GEM_PACKS, content=content, shard=shard)


def as_csv(path, *sales):
    rows = [",".join(str(value) for value in sale.values()) for sale in sales]
    path.write_text("\n".join([",".join(SALE), *rows]) + "\n")


def as_lines(path, *sales):
    path.write_text("\n".join(json.dumps(sale) for sale in sales))


def named(records):
    return [(name, record["gem_pack_id"], record["time"] - START_MS) for name, record in records]


def test_each_row_of_one_file_is_a_purchase_and_an_ad(tmp_path):
    as_csv(tmp_path / "sales.csv", SALE, SALE | {"gem_pack_id": "p2", "geo": ""})
    records = made(tmp_path / "sales.csv", 8, 1)
    assert named(records) == [
        *[("purchases", "p1", 0), ("ads", "p1", 0), ("purchases", "p2", 250), ("ads", "p2", 250)],
        *[("purchases", "p1", 500), ("ads", "p1", 500)],
        *[("purchases", "p2", 750), ("ads", "p2", 750)],
    ]
    assert records[0][1] == SALE | {
        "time": START_MS,
        "sequence": 0,
        "run_id": "r1",
        "scheduled_at": START_MS * 1000,
    }
    assert records[3][1]["geo"] == "unknown"


def test_purchases_and_ads_have_files_of_their_own(tmp_path):
    as_csv(tmp_path / "purchases.csv", *(SALE | {"gem_pack_id": f"p{n}"} for n in range(3)))
    (tmp_path / "ads").mkdir()
    as_lines(tmp_path / "ads" / "1.json", SALE | {"gem_pack_id": "a0"})
    as_lines(tmp_path / "ads" / "2.json", SALE | {"gem_pack_id": "a1"})
    assert named(made(tmp_path, 8, 1)) == [
        *[("purchases", "p0", 0), ("ads", "a0", 0), ("purchases", "p1", 250), ("ads", "a1", 250)],
        *[("purchases", "p2", 500), ("ads", "a0", 500)],
        *[("purchases", "p0", 750), ("ads", "a1", 750)],
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"user_id": ""}, "user_id is empty"),
        ({"gem_pack_id": ""}, "gem_pack_id is empty"),
        ({"price": ""}, "price is empty"),
        ({"price": -0.5}, "price is -0.5, which is not possible"),
        ({"time": "soon"}, "time is 'soon', which is not a time"),
    ],
)
def test_a_sale_that_the_stages_cannot_use_is_left_out_and_counted(tmp_path, change, reason):
    as_csv(tmp_path / "purchases.csv", SALE, SALE | change)
    as_csv(tmp_path / "ads.csv", SALE)
    content = {"source": "file", "path": str(tmp_path)}
    answer = looked(a_request(Replay(), domain=GEM_PACKS, content=content), "gem_packs")
    assert (answer["refused"], answer["bad_rows"]) == ("", 1)
    assert answer["first"].startswith(f"purchases.csv, line 3: {reason}")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["purchases.csv"], r" has nothing for ads, such as ads\.csv"),
        (["purchases.csv", "purchases.json"], r" has purchases\.csv and purchases\.json for purch"),
        (["ads.csv", "purchases.csv", "sales.csv"], r" has sales\.csv, which belongs to none of p"),
    ],
)
def test_a_folder_whose_files_could_be_of_either_is_refused(tmp_path, names, reason):
    for name in names:
        as_csv(tmp_path / name, SALE)
    with pytest.raises(InputError, match=reason):
        made(tmp_path, 1, 1)


def test_a_replay_of_too_many_copies_and_columns_that_are_not_there_are_refused(tmp_path):
    for name in ("purchases.csv", "ads.csv"):
        as_csv(tmp_path / name, *[SALE] * 26)
    with pytest.raises(InputError, match="more than 5000000 rows and copies"):
        made(tmp_path, Replay(), 1, copies=100_000)
    with pytest.raises(InputError, match="columns names 'colour'; fields are: user_id, gem_pack"):
        made(tmp_path, 1, 1, columns={"colour": "red"})
    with pytest.raises(DefinitionError, match="columns applies only to a file"):
        a_plan(1, domain=GEM_PACKS, content={"columns": {"geo": "place"}})


def sales(drawn, prefix, count):
    return [
        {
            "user_id": f"u{drawn.randrange(5)}",
            "gem_pack_id": f"{prefix}{drawn.randrange(4)}",
            "price": drawn.randrange(1, 1000) / 4,
            "geo": f"g{drawn.randrange(3):03d}",
            "time": NOON_MS + drawn.randrange(2_000),
        }
        for _ in range(count)
    ]


def expected_replay(recorded, speed, seconds, copies):
    """Each record of a replay with its time after the start in milliseconds, counted."""
    times = sorted({each["time"] for _, each in recorded})
    steps = sorted(after - before for before, after in pairwise(times))
    middle = (steps[(len(steps) - 1) // 2] + steps[len(steps) // 2]) / 2
    period_ms = times[-1] - times[0] + middle
    result = Counter()
    for turn in range(math.ceil(seconds * 1000 * speed / period_ms) + 1):
        for name, each in recorded:
            elapsed_ms = (turn * period_ms + each["time"] - times[0]) / speed
            for copy in range(copies if elapsed_ms < seconds * 1000 else 0):
                key = each["gem_pack_id"] + (f"#{copy:04d}" if copy else "")
                place = (each["user_id"], each["price"], each["geo"])
                result[name, key, int(elapsed_ms), *place] += 1
    return result


@pytest.mark.parametrize(("seed", "copies"), [(0, 1), (1, 1), (2, 3), (3, 3)])
def test_a_replay_sends_both_files_at_their_times(tmp_path, seed, copies):
    drawn = random.Random(seed)
    purchases, ads = sales(drawn, "p", 40), sales(drawn, "a", 25)
    as_csv(tmp_path / "purchases.csv", *purchases)
    as_lines(tmp_path / "ads.jsonl", *ads)
    recorded = [("purchases", each) for each in purchases] + [("ads", each) for each in ads]
    records = made(tmp_path, Replay(speed=1), 5, copies=copies)
    columns = ("user_id", "price", "geo")
    sent = Counter(
        (name, each["gem_pack_id"], each["time"] - START_MS, *(each[n] for n in columns))
        for name, each in records
    )
    assert sent == expected_replay(recorded, 1, 5, copies)
    times = [each["time"] for _, each in records]
    assert times == sorted(times)
    assert [each["sequence"] for _, each in records] == list(range(len(records)))
    shards = [made(tmp_path, Replay(speed=1), 5, (index, 2), copies=copies) for index in range(2)]
    together = sorted((each for shard in shards for each in shard), key=lambda r: r[1]["sequence"])
    assert together == records
