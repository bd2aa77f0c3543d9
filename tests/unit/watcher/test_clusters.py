"""Two clusters of one watch: names, the time up to which both are read, and their clocks."""

from collections import Counter

import pytest

from schemas.validation_errors import DefinitionError
from services.definitions.watches import read_watch
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.settings import ServiceSettings
from services.watcher.cluster import BrokerClocks
from services.watcher.clusters import (
    ClusterLags,
    ClusterReaders,
    latency_error,
    offsets_apart,
    said_of_clusters,
)
from services.watcher.counting import RunTotals
from services.watcher.group_lag import ObservedGroup, PartitionLag
from services.watcher.position import digest
from services.watcher.process import WatchContext
from services.watcher.reading import MARGIN_MS, WatchReader
from services.watcher.runs import judged_run
from services.watcher.troubles import Trouble
from tests.unit.watcher.clusters import OTHER, PLACE, Cluster
from tests.unit.watcher.records import a_watch, message

pytestmark = pytest.mark.unit
THERE = ("dr:t", 0)
DR = {"kafka": {"bootstrap": "dr:9092", "properties": {"sasl.password": "secret-of-dr"}}}
FIELDS = {"clusters": {"dr": DR}, "outputs": [{"topic": "dr:out"}]}
PATH = FIELDS | {
    "stage": "whole",
    "through": [{"topic": "between"}],
    "hops": [
        {"name": "first", "inputs": ["in"], "outputs": ["between"]},
        {"name": "cross", "inputs": ["between"], "outputs": ["dr:out"]},
    ],
}


@pytest.fixture
def other():
    return Cluster()


@pytest.fixture
def both(cluster, other, clock):
    found = ClusterReaders(
        {
            name: WatchReader(lambda it=it: it, it, ("t",), clock)
            for name, it in (("", cluster), ("dr", other))
        }
    )
    found.begin({PLACE: 42, THERE: 52})
    return found


def test_topics_of_one_name_in_two_clusters_are_read_each_by_itself(both, cluster, other):
    assert both.positions == both.kept == {PLACE: 42, THERE: 52}
    assert (cluster.assigned, other.assigned) == ({PLACE: 42}, {PLACE: 52})
    cluster.messages, other.messages = [message("t", offset=42)], [message("t", offset=60)]
    for topic, (each,) in both.read(10, 0):
        both.read_until((topic, 0), each.offset(), 5_000, 5_000)
    assert both.positions == {PLACE: 43, THERE: 61}
    other.low, other.end = 7, 70
    assert both.bounds([PLACE, THERE]) == {PLACE: (0, 100), THERE: (7, 70)}
    assert both.ends() == {PLACE: 100, THERE: 70}


def test_positions_are_saved_by_cluster(both, cluster, other, clock):
    other.id = "two"
    both.frontier_ms()
    saved = both.saved_topics()
    assert [saved[name]["ids"] for name in ("", "dr")] == [{"t": "one"}, {"t": "one"}]
    readers = {
        name: WatchReader(lambda it=it: it, it, ("t",), clock)
        for name, it in (("", cluster), ("dr", other))
    }
    again = ClusterReaders(readers)
    again.begin(both.kept, saved)
    again.frontier_ms()
    assert [(one.kind, one.detail) for one in again.troubles] == [
        ("topic_deleted", {"topic": "dr:t"})
    ]


def test_what_is_read_ends_where_the_cluster_that_is_behind_ends(both, cluster, other, clock):
    cluster.end = 42
    both.is_full = True
    both.read_until(THERE, 60, 7_000, 7_000)
    for _ in range(2):
        clock.ms += 1_000
        assert both.frontier_ms() == 7_000
    assert (cluster.paused, other.paused) == ({PLACE}, set())
    other.end = 61
    for _ in range(2):
        clock.ms += 1_000
        both.frontier_ms()
    assert both.frontier_ms() == clock.ms - MARGIN_MS
    assert cluster.paused == set()


def test_nothing_is_judged_while_one_cluster_does_not_answer(both, other, clock):
    other.offsets = OTHER
    for _ in range(5):
        clock.ms += 10_000
        assert both.frontier_ms() is None
    (trouble,) = both.troubles
    assert trouble.detail["reason"].startswith("cluster dr: it has returned no end offsets")


def test_each_cluster_is_asked_for_its_own_topics_and_groups(tmp_path):
    nobody = {"bootstrap": "127.0.0.1:1"}
    watch = a_watch(
        **PATH | {"clusters": {"dr": {"kafka": nobody}}, "kafka": nobody},
        groups=["app", "dr:app", "a:b"],
    )
    context = WatchContext(ServiceSettings(data=tmp_path))
    readers, lags = context.open_reader(watch)
    assert {name: each.topics for name, each in readers.readers.items()} == {
        "": ("in", "between"),
        "dr": ("out",),
    }
    assert {name: each.outputs for name, each in readers.readers.items()} == {
        "": ("between",),
        "dr": ("out",),
    }
    assert {name: each.groups for name, each in lags.readers.items()} == {
        "": ("app", "a:b"),
        "dr": ("app",),
    }
    readers.close()


def test_a_cluster_that_cannot_be_reached_is_named():
    class Unreachable:
        def places(self):
            raise KafkaUnavailableError("it does not answer")

    readers = ClusterReaders({"dr": Unreachable()})
    with pytest.raises(KafkaUnavailableError, match=r"^the cluster dr: it does not answer$"):
        readers.places()


def test_lags_have_the_names_of_their_cluster():
    class OneGroup:
        troubles = ()

        def answer(self):
            return [ObservedGroup("app", 1, (PartitionLag("t", 0, "", 0, 7),))]

    lags = ClusterLags({"": OneGroup(), "dr": OneGroup()})
    lags.readers["dr"].troubles = [Trouble("group_not_read", {"group": "b", "reason": "no"})]
    assert [(each.group, each.partitions[0].topic) for each in lags.answer()] == [
        ("app", "t"),
        ("dr:app", "dr:t"),
    ]
    assert [each.detail["group"] for each in lags.troubles] == ["dr:b"]
    lags.troubles = []
    assert lags.troubles == []


def test_an_offset_of_a_clock_is_between_what_is_before_and_after_a_record(reader, cluster, clock):
    reader.bounds_clocks, cluster.end = True, 44
    reader.frontier_ms()
    asked_ms = clock.ms
    clock.ms += 40  # the clock of the broker is 1,000 ms behind this machine's
    times = [asked_ms - 999, asked_ms - 990, asked_ms - 980, asked_ms - 970]
    reader.consumer.messages = [
        message("t", ms=ms, offset=offset) for offset, ms in enumerate(times, 43)
    ]
    list(reader.read(100, 0))
    # The first one after the request, 44, may have been stamped before it; the one after that, 45,
    # was stamped 980 before it by its own clock. The last one came 1,010 later.
    assert reader.clocks.behind_span_ms() == (980 - 1, 1_010 + 1)


def test_a_record_of_the_batch_that_was_appended_while_the_end_was_asked_for_bounds_no_clock(
    reader, cluster, clock
):
    reader.bounds_clocks, cluster.end = True, 44
    reader.frontier_ms()
    asked_ms = clock.ms
    clock.ms += 40
    for offsets in ([44, 45], [46]):  # one batch, stamped before the request
        reader.consumer.messages = [
            message("t", ms=asked_ms - 7, offset=offset) for offset in offsets
        ]
        list(reader.read(100, 0))
        assert reader.clocks.behind_span_ms() is None
    cluster.end = 47
    reader.frontier_ms()
    clock.ms += 40
    reader.consumer.messages = [message("t", ms=asked_ms + 5, offset=47)]
    list(reader.read(100, 0))
    assert reader.clocks.behind_span_ms() == (-5 - 1, 47 + 1)


def test_a_clock_is_bounded_only_if_each_leader_that_stamps_was_seen_on_both_sides():
    clocks = BrokerClocks()
    assert clocks.behind_span_ms() is None
    clocks.saw(1, 900, 1_000, is_stamp=True, is_fresh=True)
    assert clocks.behind_span_ms() is None
    clocks.appended_after(1, 900, 990)
    assert clocks.behind_span_ms() == (89, 101)
    clocks.saw(2, 900, 1_000, is_stamp=True, is_fresh=False)
    assert clocks.behind_span_ms() is None


def test_the_difference_of_two_clusters_has_the_error_of_both():
    assert offsets_apart((-2, 5), (10, 14)) == (5, 16)
    assert offsets_apart(None, (1, 2)) is offsets_apart((1, 2), None) is None


def test_only_stages_between_clusters_have_the_error_of_their_clocks():
    watch = a_watch(**PATH)
    assert [latency_error(watch, stage, (5, 16)) for stage in range(3)] == [
        (5, 16),
        (0, 0),
        (5, 16),
    ]
    assert [latency_error(watch, stage, None) for stage in range(3)] == [None, (0, 0), None]
    back = a_watch(clusters={"dr": DR}, inputs=[{"topic": "dr:in"}])
    assert latency_error(back, 0, (5, 16)) == (-16, -5)
    mixed = a_watch(clusters={"dr": DR}, inputs=[{"topic": "in"}, {"topic": "dr:in"}])
    assert latency_error(mixed, 0, (5, 16)) == (-16, 0)


def test_the_report_says_how_the_clocks_differ():
    watch = a_watch(**PATH)
    assert "dr are 5 to 16 ms behind those of the first" in said_of_clusters(watch, (5, 16))
    assert "is unknown" in said_of_clusters(watch, None)
    assert said_of_clusters(a_watch(), None) == ""


@pytest.mark.parametrize(
    ("line", "error", "value", "passed", "why"),
    [
        ("p99_ms <= 100", (-5, 60), 40, True, "has no such figure"),
        ("p99_ms <= 99", (-5, 60), None, False, "it is 35 to 100"),
        ("p99_ms <= 39", (-5, 60), None, False, "it is 35 to 100"),
        ("p99_ms <= 34", (-5, 60), 40, False, "has no such figure"),
        ("p99_ms <= 100", None, None, False, "how the clusters' clocks differ is unknown"),
        ("missing <= 0", None, 0, True, "has no such figure"),
    ],
)
def test_a_limit_that_the_clocks_may_decide_is_undecided_and_fails(line, error, value, passed, why):
    totals = RunTotals(Counter(exact=3))
    totals.latencies.add(40, 3)
    (row,) = judged_run(
        a_watch(**FIELDS, thresholds=[line]), totals, (0, 60_000), (), {"output": error}
    )
    assert (row.value, row.passed) == (value, passed)
    assert why in row.reason


def test_an_unknown_cluster_and_one_without_topics_are_refused():
    with pytest.raises(ValueError, match="the cluster eu, which is not in clusters"):
        a_watch(outputs=[{"topic": "eu:out"}])
    with pytest.raises(ValueError, match="each cluster needs a topic"):
        a_watch(clusters={"dr": DR})
    with pytest.raises(ValueError, match=r"needs kafka\.bootstrap"):
        a_watch(**FIELDS | {"clusters": {"dr": {}}})


def test_secrets_of_another_cluster_stay_where_those_of_the_first_do(tmp_path):
    watch = a_watch(**FIELDS)
    assert "secret-of-dr" not in str(watch.public())
    assert watch.public()["clusters"] == {"dr": {"kafka": {"bootstrap": "dr:9092"}}}
    without = a_watch(**FIELDS | {"clusters": {"dr": {"kafka": {"bootstrap": "dr:9092"}}}})
    moved = a_watch(**FIELDS | {"clusters": {"dr": {"kafka": {"bootstrap": "eu:9092"}}}})
    assert digest(watch) == digest(without) != digest(moved)
    file = tmp_path / "w.toml"
    file.write_text(
        'name = "w"\n[[inputs]]\ntopic = "in"\n[[outputs]]\ntopic = "dr:out"\n'
        '[clusters.dr.kafka]\nbootstrap = "dr:9092"\n'
        '[clusters.dr.kafka.properties]\n"sasl.password" = "secret-of-dr"\n'
        '"ssl.ca.location" = "ca.pem"\n'
    )
    file.chmod(0o644)
    with pytest.raises(DefinitionError, match="chmod 600"):
        read_watch(file)
    file.chmod(0o600)
    with pytest.raises(DefinitionError, match=r"clusters\.dr\.kafka\.properties\.ssl"):
        read_watch(file)
    (tmp_path / "ca.pem").touch()
    kafka = read_watch(file).clusters["dr"].kafka
    assert kafka.properties["ssl.ca.location"] == str(tmp_path / "ca.pem")
