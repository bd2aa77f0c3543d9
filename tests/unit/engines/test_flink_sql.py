"""The SQL of the engine flink-sql, its Kafka settings, and the end of its job."""

import importlib
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import pytest

from services.definitions.domains import load_domain
from services.runtime.settings import ROOT

pytestmark = pytest.mark.unit

SETTINGS = {
    "guarantee": "at-least-once",
    "linger_ms": 0,
    "batch_kb": 16,
    "compression": "none",
    "checkpoint_interval_ms": 5_000,
}


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the engine's folder."""
    monkeypatch.syspath_prepend(str(ROOT / "engines" / "flink_sql"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        del sys.modules[name]


def plan(domain: str, *stages: str, **settings: object) -> dict[str, Any]:
    spec = load_domain(domain).spec
    return {
        "pipeline": SETTINGS | settings,
        "domain": json.loads(spec.model_dump_json()),
        "outputs": {stage: f"outputs.flink.{stage}" for stage in stages},
        "start_offsets": {topic: [7, 0] for topic in spec.topics},
        "bootstrap": "broker:9092",
        "wire_format": "json",
        "group": "engine.flink.run",
    }


def statements(flink: Any, domain: str, *stages: str, **settings: object) -> Any:
    made = flink("statements").Statements
    return made(plan(domain, *stages, **settings), "/plan.json", {"security.protocol": "SSL"})


def created(found: Any, name: str) -> str:
    """The statement that creates a table or a view."""
    begins = tuple(f"CREATE TEMPORARY {kind} `{name}` " for kind in ("TABLE", "VIEW"))
    (one,) = (each for each in found.created if each.startswith(begins))
    return str(one)


def test_a_copy_reads_bytes_from_the_offsets_and_knows_no_record(flink: Any) -> None:
    found = statements(flink, "traffic", "ingest")
    assert found.inserts == {
        "ingest": "INSERT INTO `output_ingest` SELECT `key`, `value` FROM `raw_flow` "
        "WHERE `value` IS NOT NULL UNION ALL SELECT `key`, `value` FROM `raw_speed` "
        "WHERE `value` IS NOT NULL"
    }
    table = created(found, "raw_flow")
    assert "(`key` BYTES, `value` BYTES)" in table
    assert "'scan.startup.specific-offsets' = 'partition:0,offset:7;partition:1,offset:0'" in table
    assert "'properties.group.id' = 'engine.flink.run-flow'" in table
    assert "'properties.security.protocol' = 'SSL'" in table


def test_only_stages_that_wait_for_event_time_have_a_watermark(flink: Any) -> None:
    counted = statements(flink, "traffic", "sliding")
    assert (counted.has_watermark, "WATERMARK" in "".join(counted.created)) == (False, False)
    closed = statements(flink, "gem_packs", "revenue")
    assert "WATERMARK FOR `_time` AS `_time` - INTERVAL '0.001' SECOND" in created(
        closed, "input_purchases"
    )


def test_a_stage_reads_only_the_inputs_that_its_columns_name(flink: Any) -> None:
    found = statements(flink, "gem_packs", "revenue", "conversions")
    assert found.tables == {
        "revenue": ("input_purchases",),
        "conversions": ("input_purchases", "input_ads"),
    }
    assert created(found, "stage_revenue") == (
        "CREATE TEMPORARY VIEW `stage_revenue` AS WITH `rows` AS (SELECT `run_id`, `gem_pack_id`, "
        "'purchases' AS `_source`, `_time`, CAST(`price` AS DOUBLE) AS `_value0` "
        "FROM `input_purchases`) SELECT `run_id` AS `run_id`, `gem_pack_id` AS `gem_pack_id`, "
        "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', `window_start`) AS BIGINT) "
        "* 1000 AS `window_start`, "
        "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', `window_end`) AS BIGINT) "
        "* 1000 AS `window_end`, SUM(`_value0`) AS `revenue`, `window_time` AS `_time` "
        "FROM TABLE(HOP(TABLE `rows`, DESCRIPTOR(`_time`), INTERVAL '4' SECOND(5), "
        "INTERVAL '8' SECOND(5))) "
        "GROUP BY `run_id`, `gem_pack_id`, `window_start`, `window_end`, `window_time`"
    )


def test_a_counted_window_waits_for_as_many_rows_of_each_input_as_they_say(flink: Any) -> None:
    found = statements(flink, "traffic", "tumbling")
    assert created(found, "stage_tumbling").endswith(
        "GROUP BY `run_id`, `measurement_id`, `_start` "
        "HAVING COUNT(*) FILTER (WHERE `_source` = 'flow') >= MAX(`_most`) * 1 "
        "AND COUNT(*) FILTER (WHERE `_source` = 'speed') >= MAX(`_most`) * 1"
    )
    assert "'connector' = 'upsert-kafka'" in created(found, "output_tumbling")


def test_a_stage_reads_the_view_of_the_stage_before(flink: Any) -> None:
    found = statements(flink, "gem_packs", "dear")
    assert created(found, "stage_dear") == (
        "CREATE TEMPORARY VIEW `stage_dear` AS "
        "SELECT * FROM `stage_offers` WHERE `price` > CAST(100.0 AS DOUBLE)"
    )


def test_a_text_in_a_statement_has_its_quotes_doubled(flink: Any) -> None:
    assert flink("sql").text("it's") == "'it''s'"


@pytest.mark.parametrize(
    ("guarantee", "acks", "idempotence"),
    [("none", "1", "false"), ("at-least-once", "all", "true"), ("exactly-once", "all", "true")],
)
def test_a_guarantee_is_also_the_producers(
    flink: Any, guarantee: str, acks: str, idempotence: str
) -> None:
    table = created(statements(flink, "traffic", "join", guarantee=guarantee), "output_join")
    assert f"'sink.delivery-guarantee' = '{guarantee}'" in table
    assert f"'properties.acks' = '{acks}'" in table
    assert f"'properties.enable.idempotence' = '{idempotence}'" in table
    has_prefix = "'sink.transactional-id-prefix' = 'engine.flink.run-join'" in table
    assert has_prefix == (guarantee == "exactly-once")


@pytest.mark.parametrize(
    ("interval_ms", "timeout_ms"), [(500, 60_000), (12_000, 120_000), (600_000, 900_000)]
)
def test_a_transaction_outlasts_checkpoints_within_what_brokers_allow(
    flink: Any, interval_ms: int, timeout_ms: int
) -> None:
    settings = {"guarantee": "exactly-once", "checkpoint_interval_ms": interval_ms}
    table = created(statements(flink, "traffic", "join", **settings), "output_join")
    assert f"'properties.transaction.timeout.ms' = '{timeout_ms}'" in table


def test_the_end_of_a_cancelled_job_is_awaited(flink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = flink("cluster")
    monkeypatch.setattr(cluster, "POLL_S", 0)
    states = ("CANCELLING", "CANCELLING", "CANCELED", "CANCELED")
    texts = ["{}", *(json.dumps({"state": one, "vertices": []}) for one in states)]
    job = cluster.Job(1, "j")
    job._open = Mock(side_effect=[io.BytesIO(text.encode()) for text in texts])
    job.cancel()
    asked = [call.args[0] for call in job._open.call_args_list]
    assert [(one.method, one.selector) for one in asked] == [
        ("PATCH", "/jobs/j?mode=cancel"),
        *[("GET", "/jobs/j")] * 3,
    ]


@pytest.mark.parametrize(
    ("answer", "megabytes"),
    [([{"id": "Status.JVM.Memory.Heap.Used", "value": "3145728"}], 3.0), ([], 0.0)],
)
def test_the_heap_is_that_of_the_jvm(flink: Any, answer: list[Any], megabytes: float) -> None:
    job = flink("cluster").Job(1, "j")
    job._open = Mock(return_value=io.BytesIO(json.dumps(answer).encode()))
    assert job.heap_used_mb() == megabytes


@pytest.mark.parametrize("error", [URLError(ConnectionRefusedError()), TimeoutError()])
def test_a_job_that_cannot_be_cancelled_is_left_to_the_end_of_its_jvm(
    flink: Any, error: OSError
) -> None:
    job = flink("cluster").Job(1, "j")
    job._open = Mock(side_effect=error)
    job.cancel()


@pytest.mark.parametrize(
    ("guarantee", "calls"), [("exactly-once", ["cancel", "stop"]), ("at-least-once", ["stop"])]
)
def test_a_job_with_transactions_is_cancelled_before_its_jvm_stops(
    flink: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
    calls: list[str],
) -> None:
    given = plan("traffic", "join", guarantee=guarantee, heap_mb=1)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(given | {"folder": str(tmp_path), "properties": {}}))
    monkeypatch.setattr("sys.argv", ["engine.py", str(path)])
    engine, cluster = flink("engine"), Mock()
    for name in ("end_with_parent", "signal", "submit", "configuration"):
        monkeypatch.setattr(engine, name, Mock())
    monkeypatch.setattr(engine, "watch", Mock(return_value=0))
    for name in ("Jvm", "Job"):
        monkeypatch.setattr(engine, name, Mock(return_value=cluster))
    assert engine.main() == 0
    assert [name for name, *_ in cluster.method_calls] == calls


def test_a_login_is_one_for_javas_clients(flink: Any) -> None:
    login = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/ca.pem",
    }
    assert flink("cluster").java_properties(login) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.flink.kafka.shaded.org.apache.kafka.common.security.plain"
        '.PlainLoginModule required username="me" password="a\\"b";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }
    with pytest.raises(flink("sql").CannotError, match="client certificate"):
        flink("cluster").java_properties({"ssl.certificate.location": "/me.pem"})


def test_its_jvm_has_the_collector_that_the_runner_names(
    flink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flink-python-2.jar").touch()
    pyflink = SimpleNamespace(
        prepare_environment_variables=lambda environment: None,
        find_java_executable=lambda: "java",
        get_jvm_opts=lambda environment: [],
    )
    monkeypatch.setitem(sys.modules, "pyflink", SimpleNamespace(pyflink_gateway_server=pyflink))
    monkeypatch.setenv("FLINK_OPT_DIR", str(tmp_path))
    monkeypatch.setenv("CLASSPATH", "x.jar")
    cluster = flink("cluster")
    assert "-XX:+UseSerialGC" in cluster._command(512, tmp_path)
    monkeypatch.setenv("TIDEGAUGE_COLLECTOR", "-XX:+UseG1GC")
    command = cluster._command(512, tmp_path)
    assert [word for word in command if word.endswith("GC")] == ["-XX:+UseG1GC"]


def test_it_goes_on_from_the_newest_whole_checkpoint(flink: Any, tmp_path: Path) -> None:
    cluster = flink("cluster")
    assert cluster.newest_checkpoint(tmp_path) is None
    for time_ns, name in enumerate(("old/chk-9", "new/chk-1", "new/chk-2"), 1):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "_metadata").write_bytes(b"" if name == "new/chk-2" else b"state")
        os.utime(folder / "_metadata", ns=(time_ns, time_ns))
    assert cluster.newest_checkpoint(tmp_path) == tmp_path / "new" / "chk-1"


def with_stage(flink: Any, **stage: Any) -> Any:
    """The statements of traffic with one more stage."""
    changed = plan("traffic", "other")
    spec = {"name": "other", "record": "output_parse", "key": "measurement_id"}
    defaults = {"reads": ["parse"], "keys": [], "aggregates": [], "columns": {}, "table": None}
    changed["domain"]["stages"].append(
        spec | defaults | {"where": [], "window": None, "complete": None, "once_per": []} | stage
    )
    return flink("statements").Statements(changed, "/plan.json", {})


def test_a_filter_leaves_out_inputs_without_its_column(flink: Any) -> None:
    condition = {"column": "flow_vehicles_per_hour", "operator": ">", "value": 50.0}
    found = with_stage(flink, kind="filter", where=[condition])
    assert found.tables["other"] == ("input_flow",)
    assert "input_speed" not in found.inserts["other"]
    assert "stage_other_speed" not in "".join(found.created)
    with pytest.raises(flink("sql").CannotError, match="no input of other has the columns nothing"):
        with_stage(flink, kind="filter", where=[condition | {"column": "nothing"}])


def test_a_lookup_leaves_out_inputs_without_its_key(flink: Any) -> None:
    table = {"key": "speed_km_per_hour", "columns": ["road"], "rows": {"1.0": ["a"]}}
    found = with_stage(flink, kind="lookup", table=table)
    assert found.tables["other"] == ("input_speed",)


def test_a_window_leaves_out_inputs_without_its_key(flink: Any) -> None:
    sequence = {"column": "sequence", "function": "count", "of": ["sequence"]}
    found = with_stage(
        flink,
        kind="aggregate",
        key="flow_vehicles_per_hour",
        keys=["flow_vehicles_per_hour"],
        window={"size_s": 1, "slide_s": 1},
        aggregates=[sequence],
    )
    assert found.tables["other"] == ("input_flow",)


def test_a_join_of_an_input_that_a_filter_drops_is_refused(flink: Any) -> None:
    changed = plan("traffic", "join")
    stages = changed["domain"]["stages"]
    condition = {"column": "flow_vehicles_per_hour", "operator": ">", "value": 50.0}
    join = next(one for one in stages if one["name"] == "join")
    stages.append(join | {"name": "of_flow", "kind": "filter", "where": [condition], "keys": []})
    stages.append(join | {"name": "other", "reads": ["of_flow"]})
    changed["outputs"] = {"other": "outputs.flink.other"}
    with pytest.raises(flink("sql").CannotError, match="other reads no records of speed"):
        flink("statements").Statements(changed, "/plan.json", {})


@pytest.mark.parametrize(("given_s", "ttl"), [(120, "180 s"), (0, "0 s")])
def test_state_is_kept_for_the_longest_window_and_the_time_given(
    flink: Any, tmp_path: Path, given_s: int, ttl: str
) -> None:
    settings = {
        **{"parallelism": 1, "buffer_timeout_ms": 0, "state_ttl_s": given_s},
        **{"state_backend": "hashmap", "checkpoint_interval_ms": 0},
    }
    found = flink("cluster").configuration(
        settings, tmp_path, 1, has_watermark=False, longest_window_s=60
    )
    assert found["table.exec.state.ttl"] == ttl
    assert statements(flink, "traffic", "join").longest_window_s == 0
    assert statements(flink, "traffic", "sliding").longest_window_s == 3
