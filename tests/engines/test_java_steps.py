"""The code shared by the Java engines, without an engine: every kind of stage publishes the same as
in Python, and repeated records change nothing."""

import base64
import importlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deploy.local.engines import install_engines
from deploy.local.java import find_java
from schemas.domain import DomainSpec
from schemas.pipeline import Pipeline
from services.definitions.domains import load_domain
from services.definitions.engines import installed, load_engine
from services.runtime.settings import ROOT, ServiceSettings
from tests.engine_plans import write_plan

pytestmark = pytest.mark.engines

BEGIN_MS = 1_800_000_000_000
SECONDS = 40


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The code shared by the Python engines."""
    monkeypatch.syspath_prepend(str(ROOT / "engines" / "python"))
    importlib.import_module("stages.plan")
    return importlib.import_module("stages.flow")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the program that replays records, without its arguments."""
    settings = ServiceSettings()
    install_engines([load_engine("kafka-streams")], settings, print)
    place = installed(load_engine("kafka-streams"), settings)
    classes = tmp_path_factory.mktemp("classes")
    run = os.pathsep.join(map(str, (place.jars / "run").glob("*.jar")))
    path = os.pathsep.join([str(classes), str(place.classes), run])
    (compiler,) = (place.jars / "compiler").glob("*.jar")
    program = str(find_java(settings.jars).executable)
    options = ["-17", "-nowarn", "-proc:none", "-cp", path, "-d", str(classes)]
    sources = map(str, sorted((Path(__file__).parent / "java").glob("*.java")))
    subprocess.run([program, "-jar", str(compiler), *options, *sources], check=True)
    return [program, "-cp", path, "tidegauge.Replay"]


def traffic(draw: random.Random, at_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """Both records of every lane of three sites in one second, some of them twice."""
    found = []
    for site in ("a", "b", "ü"):
        for lane in range(3):
            common = {
                **{"measurement_id": site, "lane": f"lane{lane}", "num_lanes": 3},
                **{"latitude": 1.5, "longitude": -2.5, "observed_at": at_ms},
                **{"period_s": 60, "accuracy_percent": 95},
            }
            flow = {"flow_vehicles_per_hour": draw.choice([0, 60, 1200])}
            speed = {"speed_km_per_hour": draw.uniform(0, 130)}
            for name, own in (("flow", flow), ("speed", speed)):
                found += [(name, common | own)] * draw.choice([1, 1, 1, 2])
    draw.shuffle(found)
    return found


def gem_packs(draw: random.Random, at_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """Purchases and ads of few users and packs in one second."""
    found = []
    for _ in range(30):
        row = {
            **{"user_id": f"u{draw.randrange(4)}", "gem_pack_id": f"p{draw.randrange(3)}"},
            **{"geo": f"g00{draw.randrange(4)}", "time": at_ms + draw.randrange(3) * 300},
            # Sums of quarters are exact in any order; that of pairs of one time is not defined.
            "price": draw.randrange(4, 801) / 4,
        }
        found.append((draw.choice(["purchases", "ads"]), row))
    return found


def late(draw: random.Random, at_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """The same, some of them late, and without ads for longer than a deadline."""
    found = gem_packs(draw, at_ms)
    for _, row in found:
        row["time"] -= draw.choice([0, 0, 0, 0, 900, 4_000])
    is_silent = 15_000 <= at_ms - BEGIN_MS < 28_000
    return [one for one in found if not (is_silent and one[0] == "ads")]


def records(domain: DomainSpec, make: Any) -> list[dict[str, Any]]:
    """Records as returned by a broker."""
    draw, found, offsets = random.Random(7), [], Counter[str]()
    for second in range(SECONDS):
        for number, (name, row) in enumerate(make(draw, BEGIN_MS + 1000 * second)):
            one = domain.input(name)
            header = {"run_id": "r", "sequence": len(found), "scheduled_at": 0}
            found.append(
                {
                    "topic": one.topic,
                    "offset": offsets[one.topic],
                    "timestamp": BEGIN_MS + 1000 * second + 20 * number,
                    "value": base64.b64encode(
                        domain.codec.encode(one.record, header | row)
                    ).decode(),
                    "key": row[one.key],
                }
            )
            offsets[one.topic] += 1
    return found


def of_python(python: ModuleType, path: Path, given: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Outputs of the Python engines' code."""
    plan = sys.modules["stages.plan"].Plan(path)
    flow, found = python.Flow(plan), []
    for one in given:
        found += flow.tick(one["timestamp"] - 40)
        value = base64.b64decode(one["value"])
        found += flow.read(one["topic"], one["key"], value, one["timestamp"])
    names = {topic: stage for stage, topic in plan.outputs.items()}
    return [
        (names[topic], str(key), base64.b64encode(value).decode())
        for topic, key, value in found
        if names[topic] != "ingest"
    ]


def replayed(java: list[str], plan: Path, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of the program that replays records."""
    file = plan.with_name("records.jsonl")
    file.write_text("\n".join(map(json.dumps, given)))
    done = subprocess.run(
        [*java, str(plan), str(file)], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_java(java: list[str], plan: Path, given: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Outputs of the Java engines' code."""
    lines = replayed(java, plan, given)
    return [(line["stage"], line["key"], line["value"]) for line in lines]


def setup(folder: Path, name: str, make: Any) -> tuple[Path, Any]:
    """A plan of all stages of a domain, and records for it."""
    domain = load_domain(name).spec
    offsets = dict.fromkeys(domain.topics, (0,))
    pipeline = Pipeline(name="p", summary="-", engine="toy")
    plan = write_plan(ServiceSettings(), folder, "r", pipeline, domain, domain.stage_names, offsets)
    return plan, records(domain, make)


def told_of_kafka(java: list[str], folder: Path, **properties: str) -> dict[str, Any]:
    """The client settings of a program whose plan contains these librdkafka properties."""
    path, _ = setup(folder, "traffic", traffic)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"properties": properties}))
    command = [*java[:-1], "tidegauge.Login", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_login_reaches_javas_clients_whatever_the_password(
    java: list[str], tmp_path: Path
) -> None:
    login = {"sasl.mechanism": "scram-sha-256", "sasl.username": "me", "sasl.password": 'a"b\\c'}
    found = told_of_kafka(java, tmp_path, **{"security.protocol": "sasl_ssl"}, **login)
    del found["bootstrap.servers"]
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="me" password="a\\"b\\\\c";',
    }


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "ssl.certificate.location",
            "/me.pem",
            "this engine does not support client certificates for Kafka",
        ),
        (
            "sasl.mechanism",
            "oauthbearer",
            "this engine does not support the SASL mechanism OAUTHBEARER",
        ),
    ],
)
def test_what_javas_clients_are_not_told_is_refused_in_words(
    java: list[str], tmp_path: Path, name: str, value: str, reason: str
) -> None:
    found = told_of_kafka(java, tmp_path, **{name: value})
    assert found == {"event": "failed", "stage": "", "reason": reason}


DOMAINS = [("traffic", traffic), ("gem_packs", gem_packs), ("gem_packs", late)]
# Whether closed windows keep their records; else they are folded into aggregates.
KEEPS = (True, False)


def changed(plan: Path, **entries: Any) -> None:
    """Set entries of a plan's file."""
    plan.write_text(json.dumps(json.loads(plan.read_text()) | entries))


@pytest.mark.parametrize("keeps_records", KEEPS)
@pytest.mark.parametrize(("name", "make"), DOMAINS)
def test_every_kind_publishes_what_it_does_in_python(
    java: list[str], python: ModuleType, tmp_path: Path, name: str, make: Any, keeps_records: bool
) -> None:
    plan, given = setup(tmp_path, name, make)
    changed(plan, keeps_records=keeps_records)
    expected = Counter(of_python(python, plan, given))
    found = Counter(of_java(java, plan, given))
    stages = load_domain(name).spec.stage_names
    assert {stage for stage, *_ in found} == set(stages) - {"ingest"}
    assert found == expected


@pytest.mark.parametrize("keeps_records", KEEPS)
@pytest.mark.parametrize(("name", "make"), DOMAINS)
def test_records_that_are_read_again_make_no_other_outputs(
    java: list[str], tmp_path: Path, name: str, make: Any, keeps_records: bool
) -> None:
    plan, given = setup(tmp_path, name, make)
    changed(plan, keeps_records=keeps_records)
    once = of_java(java, plan, given)
    again = of_java(java, plan, [*given[:400], *given[300:]])
    assert len(again) > len(once)
    assert set(again) == set(once)


@pytest.mark.parametrize("keeps_records", KEEPS)
@pytest.mark.parametrize("make", [gem_packs, late])
def test_windows_are_closed_alike_if_records_come_in_another_order(
    java: list[str], tmp_path: Path, make: Any, keeps_records: bool
) -> None:
    plan, given = setup(tmp_path, "gem_packs", make)
    changed(plan, keeps_records=keeps_records)
    given = given[: len(given) // 2 * 2]
    once = Counter(of_java(java, plan, given))
    # Neighbours change places, and some come again: all within what the clock waits for.
    pairs = zip(given[1::2], given[::2], strict=True)
    reordered = [one for number, pair in enumerate(pairs) for one in pair * (1 + (number % 7 == 0))]
    closed = {"revenue", "average", "total"}
    expected = {output: count for output, count in once.items() if output[0] in closed}
    assert {stage for stage, *_ in expected} == closed
    again = Counter(of_java(java, plan, reordered))
    assert {output: count for output, count in again.items() if output[0] in closed} == expected


@pytest.mark.parametrize("keeps_records", KEEPS)
def test_records_of_an_open_window_are_kept_until_it_is_published(
    java: list[str], python: ModuleType, tmp_path: Path, keeps_records: bool
) -> None:
    plan, given = setup(tmp_path, "gem_packs", late)
    changed(plan, kept_s=1, keeps_records=keeps_records)
    stages = [one for one in load_domain("gem_packs").spec.stages if one.reads == ("parse",)]
    closed = {one.name for one in stages if one.needs == "aggregate closed"}
    expected = Counter(one for one in of_python(python, plan, given) if one[0] in closed)
    assert {stage for stage, *_ in expected} == closed
    assert Counter(one for one in of_java(java, plan, given) if one[0] in closed) == expected


def undecodable(java: list[str], plan: Path, values: list[bytes]) -> list[int]:
    """Which of these values of the first topic do not decode."""
    given = [
        {
            **{"topic": load_domain("traffic").spec.topics[0], "offset": offset},
            **{"timestamp": BEGIN_MS, "value": base64.b64encode(value).decode()},
        }
        for offset, value in enumerate(values)
    ]
    lines = replayed(java, plan, given)
    return sorted(line["offset"] for line in lines if line.get("event") == "undecodable")


def test_avro_is_decoded_as_by_the_codec(java: list[str], tmp_path: Path) -> None:
    plan, given = setup(tmp_path, "traffic", traffic)
    codec, record = load_domain("traffic").spec.codec, load_domain("traffic").spec.inputs[0].record
    value = next(one["value"] for one in given if one["topic"] == "traffic.flow")
    good = base64.b64decode(value)
    row = codec.decode(good)[1]
    three = codec.encode(record, row | {"num_lanes": 3})
    four = codec.encode(record, row | {"num_lanes": 4})
    at = next(at for at, (one, other) in enumerate(zip(three, four, strict=True)) if one != other)
    more_than_32_bits = good[:at] + b"\x80\x80\x80\x80\x10" + good[at + 1 :]
    long, negative = (codec.header(record) + size for size in (b"\xfc\xff\xff\xff\x0f", b"\x09"))
    assert undecodable(java, plan, [good, more_than_32_bits, long, negative]) == [1, 2, 3]


def test_json_is_decoded_as_by_the_codec(java: list[str], tmp_path: Path) -> None:
    plan, given = setup(tmp_path, "traffic", traffic)
    changed(plan, wire_format="json")
    value = next(one["value"] for one in given if one["topic"] == "traffic.flow")
    row = load_domain("traffic").spec.codec.decode(base64.b64decode(value))[1]
    changes = ({}, {"lane": "\ud800"}, {"num_lanes": 2**31}, {"num_lanes": True}, {"latitude": 1})
    values = [json.dumps(row | one).encode() for one in changes]
    values += [values[0] + b" x", b"[" * 100_000, b""]
    assert undecodable(java, plan, values) == [1, 2, 3, 5, 6, 7]
