"""Hand-written purchases and ads, and the expected outputs of each stage."""

from tests.gem_packs import GEM_PACKS, IN_SECONDS
from tests.unit.spark_pipeline.observations import START_MS

CODEC = IN_SECONDS.codec

# Sequence, user, gem pack, price, geography and second. No country contains the geography gxxx.
PURCHASES = (
    (0, "u1", "A", 100.0, "g000", 0.5),
    (1, "u1", "B", 150.0, "g000", 0.5),
    (2, "u2", "A", 30.0, "g001", 5),
    (3, "u1", "A", 250.0, "gxxx", 5),
    (4, "u3", "A", 50.0, "g001", 7),
)
ADS = (
    (0, "u1", "A", 120.0, "g000", 0.5),
    (1, "u2", "A", 20.0, "g001", 9),
    (2, "u1", "A", 40.0, "g001", 5.25),
    (3, "u3", "B", 60.0, "g001", 7),
)
COUNTRIES = {"g000": "Austria", "g001": "Belgium"}


def ms(second):
    return START_MS + round(1000 * second)


def record(sequence, user, pack, price, geo, second, run="r"):
    return {
        "user_id": user, "gem_pack_id": pack, "price": price, "geo": geo, "time": ms(second),
        "sequence": sequence, "run_id": run, "scheduled_at": 0,
    }  # fmt: skip


def records():
    """Topic and record of every purchase and ad."""
    return [
        *(("gem_packs.purchases", record(*each)) for each in PURCHASES),
        *(("gem_packs.ads", record(*each)) for each in ADS),
    ]


def value(topic, fields):
    return CODEC.encode(GEM_PACKS.input(topic).record, fields)


def window(start, size, **columns):
    bounds = {"window_start": ms(start), "window_end": ms(start + size)}
    return {"run_id": "r"} | bounds | columns


def conversion(start, user, purchase, ad):
    price = PURCHASES[purchase][3]
    pair = {"purchase": purchase, "ad": ad, "price": price}
    return window(start, 8, user_id=user, gem_pack_id="A", **pair)


def highest(start, second, geo, purchase, ad, price):
    pair = {"purchase": purchase, "ad": ad, "highest_price": price}
    return window(start, 8, geo=geo, time=ms(second), **pair)


def offer(start, second, country, purchase, ad, price):
    pair = {"purchase": purchase, "ad": ad, "price": price}
    return window(start, 8, country=country, time=ms(second), **pair)


PARSED = [{k: v for k, v in fields.items() if k != "scheduled_at"} for _, fields in records()]
EXPECTED = {
    "parse": PARSED,
    "revenue": [
        window(-4, 8, gem_pack_id="A", revenue=100.0),
        window(0, 8, gem_pack_id="A", revenue=430.0),
        window(4, 8, gem_pack_id="A", revenue=330.0),
        window(-4, 8, gem_pack_id="B", revenue=150.0),
        window(0, 8, gem_pack_id="B", revenue=150.0),
    ],
    "conversions": [
        conversion(-4, "u1", 0, 0),
        *(conversion(0, "u1", purchase, ad) for purchase in (0, 3) for ad in (0, 2)),
        conversion(4, "u1", 3, 2),
        conversion(4, "u2", 2, 1),
    ],
    "average": [
        window(-4, 8, geo="g000", average_price=125.0),
        window(0, 8, geo="g000", average_price=125.0),
        *(window(start, 8, geo="g001", average_price=40.0) for start in (0, 4)),
        *(window(start, 8, geo="gxxx", average_price=250.0) for start in (0, 4)),
    ],
    "highest": [
        *(highest(start, 0.5, "g000", 0, 0, 120.0) for start in (-4, 0)),
        *(highest(start, 0.5, "g000", 1, 0, 150.0) for start in (-4, 0)),
        *(highest(start, 7, "g001", 4, 3, 60.0) for start in (0, 4)),
    ],
    "enriched": [
        each | {"country": COUNTRIES[each["geo"]]} for each in PARSED if each["geo"] != "gxxx"
    ],
    "offers": [
        *(offer(start, 0.5, "Austria", 0, 0, 120.0) for start in (-4, 0)),
        *(offer(start, 0.5, "Austria", 1, 0, 150.0) for start in (-4, 0)),
        *(offer(start, 7, "Belgium", 4, 3, 60.0) for start in (0, 4)),
    ],
    "dear": [
        offer(start, 0.5, "Austria", purchase, 0, price)
        for start in (-4, 0)
        for purchase, price in ((0, 120.0), (1, 150.0))
    ],
    "total": [
        window(-4, 8, revenue=250.0, average_price=125.0),
        window(0, 8, revenue=580.0, average_price=116.0),
        window(4, 8, revenue=330.0, average_price=110.0),
    ],
    # The joins that start at -4 and 0 end in the second of these windows.
    "dear_average": [
        window(start, 8, country="Austria", average_price=135.0) for start in (-4, 0, 4)
    ],
}
# What a domain with windows of a second has: a window of both inputs.
PEAKS = [
    window(0, 1, geo="g000", highest_price=150.0),
    window(5, 1, geo="g001", highest_price=40.0),
    window(7, 1, geo="g001", highest_price=60.0),
]
