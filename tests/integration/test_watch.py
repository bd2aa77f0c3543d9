"""Watches of a pipeline that was not made for Tidegauge, compared with a brute force."""

import json
import time
import urllib.request
from collections import Counter
from contextlib import suppress

import psutil
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from schemas.events import WatchBegun
from services.definitions.watches import end_watch, keep_watch
from tests.integration.kafka_broker import own_broker  # noqa: F401
from tests.integration.registry_double import Registry, serving
from tests.integration.service_process import running_service
from tests.integration.watched_bus import (
    a_watch,
    await_conclusion,
    await_pairs,
    await_that,
    concluded,
)
from tests.integration.watched_formats import (
    IDENTITIES,
    ORDER,
    REMOVED,
    SITE,
    SITE_REFERENCE,
    Translating,
    joined,
    record_of_every_format,
    sampled,
    sides,
)
from tests.integration.watched_pipeline import (
    Load,
    Pipeline,
    as_json,
    brute_force,
    by_run,
    client,
    cluster_state,
    faulty,
    flat,
    identified,
    make_topics,
    told_by,
)
from tests.unit.watcher.one_by_one import windows_of

pytestmark = pytest.mark.integration


def order_id(message):
    return str(json.loads(message.value())["order"]["id"])


def process_of(service, name, other_than=0):
    """The process of a watch."""
    end_s = time.monotonic() + 90
    while time.monotonic() < end_s:
        for child in psutil.Process(service.pid).children():
            with suppress(psutil.Error):  # such as a killed process
                if child.cmdline()[-1:] == [name] and child.pid != other_than:
                    return child
        time.sleep(0.05)
    raise AssertionError(f"there is no process of {name}")


def test_every_count_is_that_of_a_brute_force_though_processes_are_killed(broker, tmp_path):
    make_topics(broker.bootstrap, orders=2, shipped=3)
    watch = a_watch(
        broker,
        "orders",
        inputs=[{"topic": "orders", "format": "json", "identity": ["value.order.id"]}],
        outputs=[{"topic": "shipped"}],
        thresholds=["min_ms <= 0", "missing <= 0"],
    )
    keep_watch(tmp_path, watch)

    def order(number):
        yield "orders", str(number % 7).encode(), as_json(order={"id": number}, size=3), None
        if number % 500 == 0:
            yield "orders", b"x", b"{", None
            yield "shipped", b"nobody-%d" % number, b"", None

    def shipped(message):
        try:
            number = json.loads(message.value())["order"]["id"]
        except ValueError:
            return []
        return faulty(number, ("shipped", str(number).encode(), b"done", None))

    load = Load(broker.bootstrap, order, count=9_000, per_second=1_000)
    pipeline = Pipeline(broker.bootstrap, ["orders"], shipped)
    with running_service(broker, "watcher", tmp_path) as service:
        pipeline.start()
        load.start()
        watching = process_of(service, "orders")
        await_pairs(broker, watch, 1_500)
        before = cluster_state(broker.bootstrap, ("orders", "shipped"))
        watching.kill()
        process_of(service, "orders", other_than=watching.pid)
        await_pairs(broker, watch, 4_000)
    with running_service(broker, "watcher", tmp_path) as service:
        load.join()
        pipeline.end()
        inputs = identified(broker.bootstrap, ["orders"], order_id)
        outputs = identified(broker.bootstrap, ["shipped"], lambda m: m.key().decode())
        last_ms = max(ms for _, ms in (*inputs, *outputs))
        records = await_conclusion(broker, watch, last_ms)
        assert cluster_state(broker.bootstrap, ("orders", "shipped")) == before
    expected = brute_force(watch, inputs, outputs)
    assert told_by(records, watch) == expected
    found = concluded(records, watch)
    assert len(found) >= 2
    assert_judged_once(records, watch, found, expected[0])
    details = [json.loads(one["detail"]) for one in found.values()]
    assert all(one["valid"] for one in found.values())
    assert sum(one["watch"]["refused"] for one in details) == 18
    assert {one["watch"]["times"] for one in details} == {
        "All timestamps are LogAppendTime from one broker."
    }


def assert_judged_once(records, watch, found, latencies):
    """Each run was concluded once, with the threshold of the least latency judged by all of its
    latencies."""
    ends = [record for name, record in records if name == "results_conclusions"]
    assert sum(one["run_id"].startswith(f"watch-{watch.name}-") for one in ends) == len(found)
    for run in {of for of, _ in latencies}:
        first, second = json.loads(found[run]["detail"])["thresholds"]
        least_ms = min(min(counts) for (of, _), counts in latencies.items() if of == run)
        assert (first["threshold"], first["value"]) == ("output.min_ms <= 0", least_ms)
        assert first["passed"] == (least_ms <= 0)
        assert second["passed"] == (second["value"] == 0)


def test_watches_of_every_format_go_on_beside_each_other(broker, tmp_path):
    """Avro with a registry to Protobuf; keys of type long to JSON; headers; a join of two topics; a
    filter, of which a quarter is counted; windows, with some records too late for theirs; one of
    two Avro types to keys of Avro's long; changes of rows with deletes and tombstones to keys that
    are JSON texts; windowed keys of Kafka Streams, by the timestamps of records."""
    topics = ("f_avro", "f_proto", "f_long", "f_json", "f_in", "f_out", "f_left", "f_right")
    topics += ("f_joined", "f_few", "f_read", "f_mean", "f_events", "f_placed", "f_rows")
    topics += ("f_copies", "f_sensed", "f_counts")
    make_topics(broker.bootstrap, **dict.fromkeys(topics, 2))
    with serving(Registry("reader", "secret")) as registry:
        registry.schemas[7] = {"schema": json.dumps(ORDER), "references": [SITE_REFERENCE]}
        registry.subjects["/subjects/site/versions/2"] = {"schema": json.dumps(SITE)}
        watches = [a_watch(broker, name, **fields) for name, fields in sides(registry).items()]
        for watch in watches:
            keep_watch(tmp_path, watch)
        load = Load(broker.bootstrap, record_of_every_format, count=4_000, per_second=500)
        inputs = ["f_avro", "f_long", "f_in", "f_left", "f_right", "f_read"]
        inputs += ["f_events", "f_rows", "f_sensed"]
        pipeline = Pipeline(broker.bootstrap, inputs, Translating())
        with running_service(broker, "watcher", tmp_path):
            pipeline.start()
            load.start()
            load.join()
            pipeline.end()
            found = {
                watch.name: [
                    identified(broker.bootstrap, [one.topic for one in side], identity)
                    for side, identity in zip((watch.inputs, watch.outputs), by_hand, strict=True)
                ]
                for watch, by_hand in zip(watches, IDENTITIES, strict=True)
            }
            for watch in watches:
                inputs, outputs = found[watch.name]
                last_ms = max(ms for _, ms in (*inputs, *outputs))
                records = await_conclusion(broker, watch, last_ms)
                if watch.name == "joined":
                    inputs = joined(inputs)
                if watch.share < 1:
                    inputs, outputs = sampled(inputs, 0.25), sampled(outputs, 0.25)
                    assert 500 < len(inputs) < 1_500
                expected = (
                    by_run(watch, windows_of(*map(flat, (inputs, outputs)), watch.relation))
                    if watch.relation.kind == "window"
                    else brute_force(watch, inputs, outputs)
                )
                assert told_by(records, watch) == expected, watch.name
                assert sum(map(Counter.total, expected[0].values())) > 200
                of_kind = Counter()
                for one in concluded(records, watch).values():
                    for row in json.loads(one["detail"])["watch"]["not_judged"]:
                        of_kind[row["kind"]] += row["records"]
                assert of_kind == LEFT_OUT.get(watch.name, {})
        assert registry.asked == ["/schemas/ids/7", "/subjects/site/versions/2"]


# By watch and kind, of 4,000 numbers.
LEFT_OUT = {
    "typed": {"other_type": -(-4_000 // 3)},
    "changed": {"delete": 4_000 // REMOVED, "tombstone": 4_000 // REMOVED},
}


def test_a_watch_that_begins_again_counts_into_runs_of_its_own(broker, tmp_path):
    """Restarted by its own process and, after a kill, by another."""
    make_topics(broker.bootstrap, again_in=1, again_out=1)
    watch = a_watch(
        broker, "again", inputs=[{"topic": "again_in"}], outputs=[{"topic": "again_out"}]
    )
    load = Load(broker.bootstrap, lambda n: [("again_in", b"%d" % n, b"", None)], 100, 500)
    load.start()
    load.join()

    def read(records):
        found = Counter()
        for name, record in records:
            if name == "results_throughput" and record["topic"] == "again_in":
                found[record["run_id"].rpartition("-")[2]] += record["records"]
        return sorted(found.values())

    def told(records, schema, event=""):
        return [
            record["run_id"]
            for name, record in records
            if (name, record.get("event", "")) == (schema, event)
            and record["run_id"].startswith("watch-again-")
        ]

    with running_service(broker, "watcher", tmp_path) as service:
        for count in (1, 2):
            keep_watch(tmp_path, watch)
            await_that(broker, lambda records, count=count: read(records) == [100] * count)
            if count == 2:
                process_of(service, "again").kill()
            end_watch(tmp_path, "again")
            records = await_that(
                broker,
                lambda records: (
                    sorted(told(records, "results_conclusions"))
                    == sorted(told(records, "results_lifecycle", WatchBegun.name))
                ),
            )
    assert len({*told(records, "results_conclusions")}) == len(told(records, "results_conclusions"))
    assert read(records) == [100, 100]


def test_the_metrics_of_the_watcher_have_the_counts_of_each_watch(broker, tmp_path):
    """As Prometheus' client library reads them; those of a watch that is ended disappear."""
    make_topics(broker.bootstrap, shown_in=2, shown_out=2)
    fields = {"inputs": [{"topic": "shown_in"}], "outputs": [{"topic": "shown_out"}]}
    watches = [a_watch(broker, name, **fields) for name in ("shown", "shown-again")]
    producer = Producer(client(broker.bootstrap))
    for topic, count in (("shown_in", 500), ("shown_out", 480)):
        for number in range(count):
            producer.produce(topic, b"value", b"%d" % number)
        assert producer.flush(90) == 0
    for watch in watches:
        keep_watch(tmp_path, watch)

    def scraped(watch):
        address = f"http://127.0.0.1:{broker.port('watcher')}/metrics"
        text = urllib.request.urlopen(address, timeout=90).read().decode()
        return {
            (sample.name, frozenset(sample.labels.items() - {("watch", watch.name)})): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("watch") == watch.name
        }

    def await_samples(watch, is_so):
        end_s = time.monotonic() + 120
        while not is_so(samples := scraped(watch)):
            assert time.monotonic() < end_s, samples
            time.sleep(0.2)  # poll interval
        return samples

    with running_service(broker, "watcher", tmp_path) as service:
        for watch in watches:
            process_of(service, watch.name)
            place = {"pipeline": watch.name, "stage": "output"}
            measured = place | {"phase": "measure"}

            def of(name, **labels):
                return f"tidegauge_{name}", frozenset(labels.items())

            lost = of("verdicts_total", verdict="missing", **measured)
            samples = await_samples(watch, lambda samples, lost=lost: samples.get(lost) == 20)
            timed = measured | {"definition": "latest"}
            nothing = {"pipeline": "", "stage": ""}
            assert samples[of("output_latency_seconds_count", **timed)] == 480
            assert samples[of("output_latency_seconds_bucket", le="+Inf", **timed)] == 480
            assert samples[of("topic_records_total", topic="shown_in", **nothing)] == 500
            assert samples[of("topic_records_total", topic="shown_out", **place)] == 480
            assert samples[of("topic_bytes_total", topic="shown_out", **place)] == 5 * 480
            paired = (of("verdicts_total", verdict=each, **measured) for each in ("exact", "late"))
            assert sum(samples.get(each, 0) for each in paired) == 480
            assert samples[of("watch_valid")] == 1
            assert samples[of("watch_lag_seconds")] > 0
        end_watch(tmp_path, "shown")
        await_samples(watches[0], lambda samples: not samples)
        assert scraped(watches[1])
