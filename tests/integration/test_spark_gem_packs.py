"""A domain other than traffic on Spark, with a real broker: all of its stages with Spark's built-in
operators, and the stateless ones in real-time and continuous mode."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from statistics import mean

import pytest
from confluent_kafka import Producer

from schemas import catalogue
from schemas.domain import DomainSpec
from services.definitions.domains import DOMAINS_DIR, load_domain
from services.definitions.pipelines import load_pipeline
from services.definitions.trusted import keep_definitions
from services.runtime.kafka import (
    admin_client,
    assigned_consumer,
    end_offsets,
    ensure_topics,
    open_client_properties,
)
from tests.engine_plans import write_plan
from tests.integration.kafka_broker import own_wide_broker  # noqa: F401
from tests.integration.service_process import Reader

pytestmark = pytest.mark.integration

GEM_PACKS = load_domain("gem_packs").spec
PURCHASES, ADS = GEM_PACKS.topics
DEADLINE_S = 400
T0 = 1_767_225_600_000  # the start of a window of 8 s
SECONDS = 12
CLOSING_S = 60  # after this time all windows of earlier records are closed
COUNTRIES = {geo: row[0] for geo, row in GEM_PACKS.stage("enriched").table.rows.items()}


def made_records(run_id):
    """Topic and record, in order of event time. Few users, packs, locations and times, so that many
    records match. Prices are integers, so that sums do not depend on the order."""
    draw = random.Random(20)
    found = []
    for sequence in range(30 * SECONDS):
        for topic in (PURCHASES, ADS):
            found.append((topic, {
                "user_id": f"u{draw.randrange(4)}", "gem_pack_id": f"p{draw.randrange(3)}",
                "price": float(draw.randrange(1, 200)), "geo": draw.choice(("g000", "g001", "x")),
                "time": T0 + 100 * (sequence // 3), "sequence": sequence, "run_id": run_id,
                "scheduled_at": 0,
            }))  # fmt: skip
    return found


def closing_records(run_id):
    """One record of each input, which matches nothing."""
    return [
        (topic, {"user_id": topic, "gem_pack_id": topic, "price": 1.0, "geo": topic,
                 "time": T0 + 1000 * CLOSING_S, "sequence": 999_999, "run_id": run_id,
                 "scheduled_at": 0})
        for topic in (PURCHASES, ADS)
    ]  # fmt: skip


def starts(time_ms, size_s, slide_s):
    """Starts of the windows that contain a time, epoch milliseconds."""
    last = time_ms - time_ms % (1000 * slide_s)
    return [last - 1000 * back for back in range(0, size_s, slide_s)]


def in_windows(rows, key, size_s, slide_s):
    """The rows in each window, by key and window start."""
    found = {}
    for row in rows:
        for start in starts(row["time"], size_s, slide_s):
            found.setdefault((row[key], start), []).append(row)
    return found


def aggregated(run_id, groups, key, size_s, column, value):
    return [
        {"run_id": run_id, key: of, "window_start": start, "window_end": start + 1000 * size_s,
         column: value(rows)}
        for (of, start), rows in groups.items()
    ]  # fmt: skip


def prices(rows):
    return [row["price"] for row in rows]


def expected(run_id, records):
    """The outputs of every stage except the copy, computed record by record."""
    bought = [record for topic, record in records if topic == PURCHASES]
    shown = [record for topic, record in records if topic == ADS]
    parsed = [{k: v for k, v in one.items() if k != "scheduled_at"} for _, one in records]
    enriched = [
        one | {"country": COUNTRIES[one["geo"]]} for one in parsed if one["geo"] in COUNTRIES
    ]
    places = in_windows(bought, "geo", 8, 4)
    highest = [
        {
            "run_id": run_id,
            "geo": a["geo"],
            "time": a["time"],
            "window_start": start,
            "window_end": start + 8000,
            "purchase": a["sequence"],
            "ad": b["sequence"],
            "highest_price": max(a["price"], b["price"]),
        }
        for a in bought
        for b in shown
        if (a["geo"], a["time"]) == (b["geo"], b["time"])
        for start in starts(a["time"], 8, 4)
    ]
    conversions = [
        {
            "run_id": run_id,
            "user_id": a["user_id"],
            "gem_pack_id": a["gem_pack_id"],
            "window_start": start,
            "window_end": start + 8000,
            "purchase": a["sequence"],
            "ad": b["sequence"],
            "price": a["price"],
        }
        for a in bought
        for b in shown
        if (a["user_id"], a["gem_pack_id"]) == (b["user_id"], b["gem_pack_id"])
        for start in starts(a["time"], 8, 4)
        if start in starts(b["time"], 8, 4)
    ]
    offers = [
        {
            "run_id": run_id,
            "country": COUNTRIES[a["geo"]],
            "time": a["time"],
            "window_start": start,
            "window_end": start + 8000,
            "purchase": a["sequence"],
            "ad": b["sequence"],
            "price": max(a["price"], b["price"]),
        }
        for a in bought
        for b in shown
        if a["geo"] in COUNTRIES
        and b["geo"] in COUNTRIES
        and (COUNTRIES[a["geo"]], a["time"]) == (COUNTRIES[b["geo"]], b["time"])
        for start in starts(a["time"], 8, 4)
    ]
    dear = [one for one in offers if one["price"] > 100]
    # A pair belongs to the windows with the last millisecond of the window it was joined in.
    at_end = [one | {"time": one["window_end"] - 1} for one in dear]
    of_dear = in_windows(at_end, "country", 8, 4)
    revenue = in_windows(bought, "gem_pack_id", 8, 4)
    return {
        "parse": parsed,
        "revenue": aggregated(
            run_id, revenue, "gem_pack_id", 8, "revenue", lambda rows: sum(prices(rows))
        ),
        "conversions": conversions,
        "average": aggregated(
            run_id, places, "geo", 8, "average_price", lambda rows: mean(prices(rows))
        ),
        "highest": highest,
        "enriched": enriched,
        "offers": offers,
        "dear": dear,
        "dear_average": aggregated(
            run_id, of_dear, "country", 8, "average_price", lambda rows: mean(prices(rows))
        ),
        "total": [
            {
                "run_id": run_id,
                "window_start": start,
                "window_end": start + 8000,
                "revenue": sum(prices(rows)),
                "average_price": mean(prices(rows)),
            }
            for (_, start), rows in in_windows(bought, "run_id", 8, 4).items()
        ],
    }  # fmt: skip


def write(settings, domain, records):
    """Write records in order, each second of event time before the next."""
    producer = Producer(open_client_properties(settings, "tests"))
    for number, (topic, record) in enumerate(records):
        spec = domain.input(topic)
        producer.produce(topic, domain.codec.encode(spec.record, record), record[spec.key])
        if number % 60 == 59:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


@contextmanager
def running_driver(settings, folder, pipeline, domain, stages):
    """A pipeline as the runner starts it; stopped at the end of the context."""
    partitions = settings.input_partitions
    topics = (*catalogue.domain_topics(domain, partitions),
              *catalogue.published_topics(domain, pipeline.name, stages, partitions))  # fmt: skip
    ensure_topics(admin_client(settings, "tests"), topics)
    consumer = assigned_consumer(settings, "tests")
    offsets = {topic: end_offsets(consumer, topic) for topic in domain.topics}
    consumer.close()
    plan = write_plan(settings, folder, "run", pipeline, domain, stages, offsets)
    lines = folder / "lines"
    with lines.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.spark_pipeline.driver", str(plan)],
            stdin=subprocess.PIPE,
            stdout=output,
            env=os.environ
            | {
                "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
                "TIDEGAUGE_DATA": str(folder),
            },
        )
    try:
        end = time.monotonic() + DEADLINE_S
        while '"event": "ready"' not in lines.read_text():
            assert process.poll() is None, lines.read_text()[-2000:]
            assert time.monotonic() < end, "the driver did not get ready"
            time.sleep(0.1)  # poll interval
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def outputs_of(settings, domain, name, stage, count):
    """At least `count` decoded outputs of a stage, and their keys."""
    reader = Reader(settings, catalogue.output_topic(name, stage))
    end = time.monotonic() + DEADLINE_S
    while len(reader.messages) < count:
        assert time.monotonic() < end, f"{name} {stage}: {len(reader.messages)} of {count}"
        reader.read()
    reader.read()
    reader.close()
    return [(m.key(), domain.codec.decode(m.value())[1]) for m in reader.messages]


def rounded(rows):
    """Rows as hashable text; means of different engines differ in their last digits."""
    return Counter(
        json.dumps({k: round(v, 9) if isinstance(v, float) else v for k, v in row.items()},
                   sort_keys=True)
        for row in rows
    )  # fmt: skip


def check(settings, domain, name, rows_by_stage):
    for stage, rows in rows_by_stage.items():
        assert rows, stage
        found = outputs_of(settings, domain, name, stage, len(rows))
        assert rounded(row for _, row in found) == rounded(rows), stage
        key = domain.stage(stage).key
        assert all(each == str(row[key]).encode() for each, row in found), stage


def test_all_stages_built_in_publish_what_plain_python_computes(broker, tmp_path):
    name, run_id = "spark-microbatch-builtin", "gems"
    records, closing = made_records(run_id), closing_records(run_id)
    wanted = expected(run_id, records)
    last = [{k: v for k, v in one.items() if k != "scheduled_at"} for _, one in closing]
    with running_driver(broker, tmp_path, load_pipeline(name), GEM_PACKS, GEM_PACKS.stage_names):
        # Long before the load, like the probe traffic of a run.
        probes = [(topic, one | {"run_id": "gems-probe", "time": T0 - 60_000})
                  for topic, one in records[:2]]  # fmt: skip
        write(broker, GEM_PACKS, probes)
        outputs_of(broker, GEM_PACKS, name, "ingest", 2)
        write(broker, GEM_PACKS, records)
        write(broker, GEM_PACKS, closing)
        found = outputs_of(broker, GEM_PACKS, name, "ingest", 2 + len(records) + 2)
        assert len(found) == 2 + len(records) + 2
        of_probes = expected("gems-probe", probes)
        check(
            broker,
            GEM_PACKS,
            name,
            {
                stage: [*rows, *of_probes[stage], *(last if stage == "parse" else ())]
                for stage, rows in wanted.items()
            },
        )


def with_a_filter():
    """The domain with an additional stage: a filter of a lookup's outputs."""
    fields = GEM_PACKS.model_dump()
    stage = {
        "name": "dear_enriched", "kind": "filter", "reads": ["enriched"],
        "record": "gem_packs_enriched", "key": "gem_pack_id",
        "where": [{"column": "price", "operator": ">", "value": 100}],
    }  # fmt: skip
    return DomainSpec.model_validate(fields | {"stages": [*fields["stages"], stage]})


@pytest.mark.engines
@pytest.mark.parametrize("name", ["spark-realtime", "spark-continuous"])
def test_stages_without_state_run_without_batches_too(broker, tmp_path, name):
    domain, run_id = with_a_filter(), f"stateless-{name}"
    stages = ("ingest", "parse", "enriched", "dear_enriched")
    records = made_records(run_id)[:300]
    wanted = expected(run_id, records)
    wanted = {stage: wanted[stage] for stage in ("parse", "enriched")}
    wanted["dear_enriched"] = [row for row in wanted["enriched"] if row["price"] > 100]
    with running_driver(broker, tmp_path, load_pipeline(name), domain, stages):
        write(broker, domain, records)
        assert len(outputs_of(broker, domain, name, "ingest", 300)) == 300
        check(broker, domain, name, wanted)


OWN = """
from pyspark.sql import functions as F


def revenue(rows, stage):
    window = F.window("time", f"{stage.window.size_s} seconds", f"{stage.window.slide_s} seconds")
    return rows.groupBy("run_id", "gem_pack_id", window).agg(_ten(F.sum("price"))).select(
        "run_id", "gem_pack_id", "revenue",
        F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"),
    )


def _ten(column):
    return F.udf(_tenfold, "double")(column).alias("revenue")


def _tenfold(value):
    return 10 * value
"""


def test_a_domain_computes_a_stage_itself(broker, tmp_path):
    folder, name, run_id = tmp_path / "mine", "spark-own", "own"
    shutil.copytree(DOMAINS_DIR / "gem_packs", folder)
    text = (folder / "domain.toml").read_text()
    (folder / "domain.toml").write_text(text.replace('name = "gem_packs"', 'name = "mine"'))
    (folder / "spark.py").write_text(OWN)
    mine = load_domain(str(folder))
    keep_definitions(tmp_path, [], [], [mine])
    changed = {"name": name, "implementation": "own"}
    pipeline = load_pipeline("spark-microbatch-builtin").model_copy(update=changed)
    records, closing = made_records(run_id), closing_records(run_id)
    wanted = expected(run_id, records)
    tenfold = [row | {"revenue": 10 * row["revenue"]} for row in wanted["revenue"]]
    with running_driver(broker, tmp_path, pipeline, mine.spec, ("revenue", "average")):
        write(broker, mine.spec, [*records, *closing])
        check(broker, mine.spec, name, {"revenue": tenfold, "average": wanted["average"]})
