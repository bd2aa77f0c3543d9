"""Engines: the contents of their files, and the settings they require in a pipeline's file."""

import os
import re
from pathlib import Path

import pytest

from schemas.domain import DomainSpec
from schemas.load import Constant
from schemas.pipeline import Pipeline
from schemas.validation_errors import DefinitionError
from schemas.workload import Kill, Workload
from services.definitions.domains import load_domain
from services.definitions.engines import (
    engine_for,
    installed,
    load_engine,
    load_engines,
    make_folders_absolute,
)
from services.definitions.pipelines import (
    checked_pipeline,
    load_pipeline,
    load_pipelines,
    reason_against,
    stages_published,
    with_settings,
    with_workers,
)
from services.definitions.requests import new_request, not_published
from services.definitions.workloads import load_workload
from services.runtime.settings import ServiceSettings
from tests.traffic import TRAFFIC

pytestmark = pytest.mark.unit

GEM_PACKS = load_domain("gem_packs").spec
WORKLOAD = Workload(name="w", summary="-", load=Constant(rate_per_second=1))
RECORD, DISK = {"target": "record"}, {"target": "disk"}


def pipeline(**fields: object) -> Pipeline:
    given = {"name": "p", "summary": "-", "engine": "spark", "mode": "micro-batch"}
    return checked_pipeline(given | fields)


def published(domain: DomainSpec, **fields: object) -> tuple[str, ...]:
    return stages_published(pipeline(**fields), domain, domain.stage_names)[0]


ALL = ("ingest", "parse", "join", "tumbling", "sliding")


@pytest.mark.parametrize(
    ("fields", "stages"),
    [
        ({}, ALL),
        ({"mode": "real-time"}, ALL),
        ({"implementation": "built-in", "incomplete_windows": "publish"}, ALL),
        ({"implementation": "state"}, ("join", "tumbling", "sliding")),
        ({"implementation": "stateless", "mode": "continuous"}, ("ingest", "parse")),
        ({"implementation": "state", "stages": ["join"]}, ("join",)),
        ({"mode": "real-time", "topology": "via-topics"}, ALL),
    ],
)
def test_a_pipeline_publishes_what_its_engine_can_unless_it_names_stages(fields, stages):
    assert published(TRAFFIC, **fields) == stages


@pytest.mark.parametrize(
    ("fields", "stages"),
    [
        ({}, ("ingest", "parse", "enriched")),
        ({"implementation": "built-in", "incomplete_windows": "publish"}, GEM_PACKS.stage_names),
        ({"implementation": "state"}, ()),
    ],
)
def test_a_stage_needs_what_the_stages_before_it_need(fields, stages):
    assert published(GEM_PACKS, **fields) == stages


@pytest.mark.parametrize(
    ("asked", "stages"),
    [
        (("ingest",), ("ingest",)),
        (("join",), ("ingest", "parse", "join")),
        (("sliding", "parse"), ("ingest", "parse", "tumbling", "sliding")),
    ],
)
def test_via_topics_what_a_stage_reads_is_published_too(asked, stages):
    found = load_pipeline("spark-realtime-via-topics")
    request = new_request(WORKLOAD, [found, load_pipeline("spark-realtime")], asked, TRAFFIC)
    assert request.published == {"spark-realtime-via-topics": stages, "spark-realtime": asked}
    assert request.topologies == {
        "spark-realtime-via-topics": "via-topics",
        "spark-realtime": "independent",
    }


@pytest.mark.parametrize(
    ("changes", "names", "reason"),
    [
        ({"kills": [{"target": "worker"}]}, ["kafka-streams"], "No worker to kill: kafka-streams "),
        ({"kills": [{"target": "worker"}]}, ["flink"], "No worker to kill: flink runs in one "),
        (
            {"kills": [{"target": "driver", "at_s": 30}]},
            ["spark-realtime"],
            "the kill of the driver is at 30 s; the measured phase ends at 30 s.",
        ),
        ({"kills": [RECORD]}, ["flink", "storm"], "storm cannot be made to throw at a record."),
        (
            {"kills": [RECORD]},
            ["spark-microbatch-standalone"],
            "spark-microbatch-standalone cannot be made to throw at a record.",
        ),
        (
            {"kills": [DISK]},
            ["flink", "calibration"],
            "calibration has no state on a disk that could be filled.",
        ),
        ({"search": {}}, ["spark-realtime", "flink"], "needs one pipeline"),
        (
            {"thresholds": ["jion.p99_ms <= 50"]},
            ["spark-realtime"],
            "'jion.p99_ms <= 50' is for jion; stages of spark-realtime in this run: parse, join.",
        ),
        (
            {"thresholds": ["flink: join.p99_ms <= 50"]},
            ["spark-realtime"],
            "is for the pipeline flink; the run measures spark-realtime.",
        ),
    ],
)
def test_what_a_run_cannot_do_is_refused_before_it_starts(changes, names, reason):
    workload = Workload.model_validate(WORKLOAD.model_dump() | changes)
    with pytest.raises(DefinitionError) as refused:
        new_request(workload, [load_pipeline(one) for one in names], ("parse", "join"), TRAFFIC)
    assert reason in str(refused.value)


def test_workers_are_killed_where_there_are_some():
    workload = WORKLOAD.model_copy(update={"kills": (Kill(target="worker"),)})
    for name in ("flink-cluster", "spark-microbatch-standalone"):
        assert new_request(workload, [load_pipeline(name)], ("join",), TRAFFIC)


def test_records_and_disks_may_be_faulty_where_engines_allow_it():
    for target, names in {
        "record": ("calibration", "flink", "kafka-streams-dsl", "spark-realtime"),
        "disk": ("flink-sql", "kafka-streams", "spark-microbatch-standalone"),
    }.items():
        workload = WORKLOAD.model_copy(update={"kills": (Kill(target=target),)})
        assert new_request(workload, [load_pipeline(one) for one in names], ("join",), TRAFFIC)


def test_thresholds_may_be_for_what_a_run_has():
    lines = ("*.missing == 0", "input.records >= 1", "pipeline.cpu_cores <= 2", "join.max_ms < 9")
    workload = WORKLOAD.model_copy(update={"thresholds": lines})
    assert new_request(workload, [load_pipeline("flink")], ("join",), TRAFFIC)


def test_only_a_chain_can_compute_a_stage_from_another_than_the_domain_says():
    with pytest.raises(ValueError, match="reads: spark with mode micro-batch and implementation"):
        pipeline(reads={"tumbling": "join"})
    chained = load_pipeline("spark-microbatch-chained")
    assert chained.reads == {"tumbling": "join"}
    wrong = chained.model_copy(update={"reads": {"tumbling": "joined"}})
    with pytest.raises(DefinitionError) as refused:
        new_request(WORKLOAD, [wrong], ("tumbling",), TRAFFIC)
    assert str(refused.value) == (
        "spark-microbatch-chained: reads: traffic has no stage 'joined' for tumbling."
    )


def test_a_chain_that_reads_what_comes_later_is_refused_in_one_sentence():
    wrong = load_pipeline("spark-microbatch-chained").model_copy(
        update={"reads": {"parse": "join"}}
    )
    with pytest.raises(DefinitionError) as refused:
        new_request(WORKLOAD, [wrong], ("tumbling",), TRAFFIC)
    assert str(refused.value) == (
        "spark-microbatch-chained: reads: the stage parse reads 'join', which is neither an input"
        " nor an earlier stage."
    )


def test_via_topics_nothing_before_a_stage_may_lack():
    ability = load_engine("spark").spec.ability_of(load_pipeline("spark-microbatch-state"))
    assert ability is not None
    assert reason_against(ability, TRAFFIC, "join") == ""
    via_topics = ability.model_copy(update={"topology": "via-topics"})
    assert reason_against(via_topics, TRAFFIC, "join").startswith("it depends on ingest; ")


def test_why_a_stage_is_not_published_is_told_once_per_reason():
    found = load_pipeline("spark-continuous")
    request = new_request(WORKLOAD, [found], ("parse", "join", "tumbling"), TRAFFIC)
    assert request.published == {"spark-continuous": ("parse",)}
    assert not_published(request) == (
        "spark-continuous does not publish join, tumbling: continuous processing keeps no state.",
    )
    assert not_published(new_request(WORKLOAD, [found], ("parse",), TRAFFIC)) == ()


def test_a_run_in_which_a_pipeline_publishes_nothing_is_refused():
    with pytest.raises(DefinitionError) as refused:
        new_request(WORKLOAD, [load_pipeline("spark-continuous")], ("join",), TRAFFIC)
    assert str(refused.value) == (
        "spark-continuous can publish none of the stages join; join: continuous processing keeps"
        " no state."
    )
    with pytest.raises(DefinitionError) as refused:
        new_request(WORKLOAD, [load_pipeline("external-python")], ("join",), TRAFFIC)
    assert str(refused.value) == (
        "external-python publishes none of the stages join; it has: ingest, parse."
    )


@pytest.mark.parametrize(
    ("changes", "others", "needs"),
    [
        ({}, (), "a transport: --transport tcp, udp or zeromq"),
        ({"transport": "tcp"}, ("floor",), "to be the only pipeline of its run"),
        ({"transport": "udp", "processing_time": True}, (), "a workload without processing_time"),
    ],
)
def test_a_system_behind_sockets_is_measured_alone_and_over_the_network(changes, others, needs):
    workload = WORKLOAD.model_copy(update=changes)
    pipelines = [load_pipeline(name) for name in ("socket-python", *others)]
    with pytest.raises(DefinitionError) as refused:
        new_request(workload, pipelines, ("parse",), TRAFFIC)
    beginning = f"socket-python is a system behind sockets and needs {needs}"
    assert str(refused.value).startswith(beginning)


def test_the_gateway_has_no_part_in_a_run_behind_sockets():
    workload = WORKLOAD.model_copy(update={"transport": "tcp"})
    behind = new_request(workload, [load_pipeline("socket-python")], ("parse",), TRAFFIC)
    through = new_request(workload, [load_pipeline("external-python")], ("parse",), TRAFFIC)
    assert (behind.has_gateway, through.has_gateway) == (False, True)
    assert behind.counts_losses("parse")
    assert through.counts_losses("join")
    assert not through.counts_losses("tumbling")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"mode": "continuous"}, "no mode continuous and implementation customised and"),
        ({"implementation": "state", "mode": "real-time"}, "spark has no mode real-time and"),
        ({"implementation": "built-in"}, "can only publish incomplete windows"),
        ({"mode": "real-time", "state_store": "hdfs"}, "needs state_store rocksdb"),
        ({"implementation": "state", "state_store": "hdfs"}, "needs state_store rocksdb"),
        ({"incomplete_windows": "publish"}, "can only withhold incomplete windows"),
        ({"mode": "fast"}, "mode: must be one of real-time, micro-batch, continuous"),
        ({"watermark_s": "1"}, "watermark_s: must be an integer"),
        ({"watermark_s": -1}, "watermark_s: must be at least 0"),
        ({"watermark_s": True}, "watermark_s: must be an integer"),
        ({"batch_duration_s": 4}, "batch_duration_s: must be at least 5"),
        ({"shuffle_partitions": 1025}, "shuffle_partitions: must be at most 1024"),
        ({"quick_compiler": 1}, "quick_compiler: must be true or false"),
        ({"jvm_options": [1]}, "jvm_options: must be a list of strings"),
        ({"spark_conf": {"a": 1}}, "spark_conf: must be a table of strings"),
        ({"watermark": 1}, "watermark: spark has no such setting; there are: "),
        ({"engine": "sparc"}, f"There is no engine 'sparc'; there are: {', '.join(load_engines())}"
         ". Did you mean spark?"),
        ({"engine": "calibration", "mode": "x"}, "mode: calibration has no such setting"),
    ],
)  # fmt: skip
def test_what_a_pipeline_cannot_say_is_refused_with_what_it_can(fields, reason):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        pipeline(**fields)
    assert reason in str(refused.value)


def test_a_setting_that_has_no_default_must_be_given():
    with pytest.raises(
        ValueError,
        match=r"mode: spark needs this setting \(real-time, micro-batch, continuous\): Trigger",
    ):
        checked_pipeline({"name": "p", "summary": "-", "engine": "spark"})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"spark_conf": {"spark.x": "1", "spark.hadoop.fs.azure.account.key.me": "xyz"}},
         "spark.hadoop.fs.azure.account.key.me"),
        ({"spark_conf": {"spark.executor.extraJavaOptions": "-Dsome.password=xyz"}},
         "spark.executor.extraJavaOptions"),
        ({"jvm_options": ["-Xmx1g", "-Djavax.net.ssl.trustStorePassword=xyz"]},
         "-Djavax.net.ssl.trustStorePassword"),
    ],
)  # fmt: skip
def test_a_secret_is_refused_because_a_run_publishes_its_pipelines(fields, named):
    with pytest.raises(ValueError, match="looks like a secret") as refused:
        pipeline(**fields)
    sentence = str(refused.value)
    assert f"{named} looks like a secret" in sentence
    assert "TIDEGAUGE_SPARK_CONF" in sentence
    assert "xyz" not in sentence
    with pytest.raises(ValueError, match=f"{named} looks like a secret") as refused:
        Pipeline.model_validate(
            {"name": "p", "summary": "-", "engine": "spark"} | fields
        )  # as in a command
    assert "xyz" not in str(refused.value)


def test_settings_that_only_sound_like_secrets_are_taken():
    jar = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"
    assert pipeline(spark_conf={"spark.jars.packages": jar}, jvm_options=["-XX:+UseZGC"])
    for name in ("spark.hadoop.fs.s3a.aws.credentials.provider", "hadoop.credential.provider.path"):
        assert pipeline(spark_conf={name: "org.example.Provider"})


def test_a_pipeline_is_the_same_after_its_way_over_the_bus():
    found = load_pipeline("spark-microbatch-builtin")
    assert Pipeline.model_validate_json(found.model_dump_json()) == found


def test_settings_have_bounds_in_commands_too():
    many = {f"s{number}": 1 for number in range(101)}
    for given in (many, {"s": "x" * 50_001}, {"s": [1]}, {"s": {"a": {}}}):
        with pytest.raises(ValueError):  # noqa: PT011
            Pipeline.model_validate({"name": "p", "summary": "-", "engine": "spark"} | given)


TOY = """
name = "toy"
summary = "-"
command = ["python", "toy.py"]
install = { note = "-" }
[[abilities]]
can = ["copy"]
"""


def test_an_engine_of_ones_own_is_a_folder(tmp_path: Path, monkeypatch):
    (tmp_path / "toy").mkdir()
    file = tmp_path / "toy" / "engine.toml"
    reasons = "".join(f'"{need}" = "no"\n' for need in (
        "decode", "filter", "lookup", "join", "window_join", "aggregate counted",
        "aggregate closed", "change counted", "change closed",
    ))  # fmt: skip
    for folder in (tmp_path, tmp_path / "toy"):
        monkeypatch.setenv("TIDEGAUGE_ENGINES", f"/nowhere:{folder}")
        file.write_text(TOY + "[abilities.cannot]\n" + reasons)
        assert load_engine("toy").folder == tmp_path / "toy"
        assert set(load_engines()) >= {"calibration", "external", "spark", "toy"}
    one = checked_pipeline({"name": "p", "summary": "-", "engine": "toy"})
    assert stages_published(one, TRAFFIC, ("ingest", "parse")) == (("ingest",), {"parse": "no"})


def test_an_engine_of_ones_own_names_the_settings_that_are_its_workers(tmp_path: Path, monkeypatch):
    able = 'can = ["copy", "decode", "filter", "lookup", "join", "window_join", "aggregate counted"'
    able += ', "aggregate closed", "change counted", "change closed"]\nscales_by = ["loops"]\n'
    text = TOY.replace('can = ["copy"]\n', able)
    setting = '[settings.loops]\ntype = "integer"\ndefault = 1\nmax = 8\nhelp = "x"\n'
    monkeypatch.setenv("TIDEGAUGE_ENGINES", str(tmp_path))
    (tmp_path / "engine.toml").write_text(text + setting)
    one = checked_pipeline({"name": "p", "summary": "-", "engine": "toy"})
    three = with_workers(one, 3, "p-w3")
    assert (three.name, three.settings) == ("p-w3", {"loops": 3})
    with pytest.raises(DefinitionError, match=r"^9 workers: loops: must be at most 8\.$"):
        with_workers(one, 9, "p-w9")
    for wrong in ("", setting.replace("integer", "number").replace("= 1", "= 1.0")):
        (tmp_path / "engine.toml").write_text(text + wrong)
        with pytest.raises(DefinitionError, match="loops, which is not an integer setting"):
            load_engine("toy")
    others = text.replace('scales_by = ["loops"]\n', '[processes]\nworkers_by = "loops"\n')
    (tmp_path / "engine.toml").write_text(others)
    with pytest.raises(DefinitionError, match="workers_by names loops, which is not an integer"):
        load_engine("toy")


def test_folders_of_engines_mean_the_same_to_processes_elsewhere(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    monkeypatch.setenv("TIDEGAUGE_ENGINES", "one:/tmp:")
    make_folders_absolute()
    assert os.environ["TIDEGAUGE_ENGINES"] == f"{tmp_path}/one:/tmp"
    monkeypatch.setenv("TIDEGAUGE_ENGINES", "one:two")
    with pytest.raises(DefinitionError, match="TIDEGAUGE_ENGINES names two, which is not a folder"):
        make_folders_absolute()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TOY, "'decode' must be in can, or in cannot with a reason"),
        (TOY.replace('"toy"', '"spark"'), "must be in can"),
        (TOY.replace("command", "module"), "module"),
        (TOY.replace('command = ["python", "toy.py"]', ""), "either a module or a command"),
        ("name = [", "engine.toml: "),
        (TOY + '[settings.stages]\ntype = "text"\nhelp = "x"', "every pipeline has stages"),
        (TOY + '[settings.a]\ntype = "text"\ndefault = 1\nhelp = "x"', "must be a string"),
    ],
)
def test_a_wrong_engine_file_is_told_in_one_sentence(tmp_path, monkeypatch, text, reason):
    (tmp_path / "engine.toml").write_text(text)
    monkeypatch.setenv("TIDEGAUGE_ENGINES", str(tmp_path))
    with pytest.raises(DefinitionError) as refused:
        load_engines()
    assert str(tmp_path / "engine.toml") in str(refused.value)
    assert "\n" not in str(refused.value)
    if "must be in can" not in str(refused.value):
        assert reason in str(refused.value)


def test_a_workload_gives_workers_to_pipelines_whose_engine_says_what_one_is() -> None:
    skew = load_workload("skew")
    given = load_pipelines(["spark-microbatch", "external-python"])
    spark, external = new_request(skew, given, (), TRAFFIC).pipelines
    assert (skew.partitions, skew.workers) == (2, 2)
    assert [spark.settings[name] for name in ("workers", "shuffle_partitions")] == [2, 2]
    assert external == given[1]


def test_an_engine_has_other_versions_in_folders_of_their_own(tmp_path):
    streams = load_engine("kafka-streams")
    place = installed(streams, ServiceSettings(installed_engines=tmp_path))
    (version,) = streams.spec.versions
    other = installed(streams.at(version), ServiceSettings(installed_engines=tmp_path))
    assert (place.folder.name, other.folder.name) == ("kafka-streams", f"kafka-streams-{version}")
    assert (other.version(), place.version()) != (place.version(), version)
    assert other.version() == version
    assert streams.at(place.version()) == streams.at("") == streams
    with pytest.raises(DefinitionError, match=rf"'9\.9'; there are: .*{version}"):
        streams.at("9.9")


def test_a_pipeline_names_the_version_of_its_engine():
    (version,) = load_engine("flink").spec.versions
    old = load_pipeline(f"flink@{version}")
    assert (old.name, old.version) == (f"flink-{version.replace('.', '-')}", version)
    assert old.settings == load_pipeline("flink").settings
    assert engine_for(old).version == version
    assert with_settings(load_pipeline("flink"), {"version": version}).version == version
    for name, says in (
        ("flink@9.9", "flink@9.9: There is no version of flink '9.9'; there are: "),
        ("flink@", "flink@: a version must follow the @."),
        ("none@1", "There is no pipeline 'none'"),
    ):
        with pytest.raises(DefinitionError, match=f"^{re.escape(says)}"):
            load_pipeline(name)
