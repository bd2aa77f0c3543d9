"""What the Java engines share, without an engine: every kind of stage publishes what the example of
an engine in Python publishes, and records that come again change nothing."""

import base64
import importlib.util
import json
import os
import random
import subprocess
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from deploy.local.engines import install_engines
from deploy.local.java import find_java
from schemas.pipeline import Pipeline
from services.runtime.domains import load_domain
from services.runtime.engines import load_engine
from services.runtime.installed import installed
from services.runtime.settings import ROOT, ServiceSettings
from tests.engine_plans import write_plan

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]

BEGIN_MS = 1_800_000_000_000
SECONDS = 40


def toy() -> ModuleType:
    """The example of an engine."""
    path = ROOT / "examples" / "toy_engine" / "engine.py"
    spec = importlib.util.spec_from_file_location("toy_engine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    source = str(Path(__file__).parent / "java" / "Replay.java")
    subprocess.run([program, "-jar", str(compiler), *options, source], check=True)
    return [program, "-cp", path, "tidegauge.Replay"]


def traffic(draw: random.Random, at_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """Both records of every lane of three sites in one second; some of them twice."""
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
            "price": round(draw.uniform(1, 200), 2),
        }
        found.append((draw.choice(["purchases", "ads"]), row))
    return found


def records(domain: Any, make: Any, engine: ModuleType) -> list[dict[str, Any]]:
    """Records as a broker has them."""
    draw, found, offsets = random.Random(7), [], Counter[str]()
    schemas = {name: engine.Record(text) for name, text in domain.schemas.items()}
    for second in range(SECONDS):
        for number, (name, row) in enumerate(make(draw, BEGIN_MS + 1000 * second)):
            one = domain.input(name)
            header = {"run_id": "r", "sequence": len(found), "scheduled_at": 0}
            found.append(
                {
                    "topic": one.topic,
                    "offset": offsets[one.topic],
                    "timestamp": BEGIN_MS + 1000 * second + 20 * number,
                    "value": base64.b64encode(schemas[one.record].encode(header | row)).decode(),
                    "key": row[one.key],
                }
            )
            offsets[one.topic] += 1
    return found


def of_toy(engine: ModuleType, plan: Any, given: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """What the example publishes."""
    sent = []
    names = {topic: stage for stage, topic in plan["outputs"].items()}

    def produce(topic: str, value: bytes, key: Any) -> None:
        if names[topic] != "ingest":
            sent.append((names[topic], str(key), base64.b64encode(value).decode()))

    made = engine.Engine(plan, SimpleNamespace(produce=produce))
    for one in given:
        made.tick(one["timestamp"])
        value = base64.b64decode(one["value"])
        made.read(
            SimpleNamespace(
                topic=lambda one=one: one["topic"],
                key=lambda: b"",
                value=lambda value=value: value,
                timestamp=lambda one=one: (1, one["timestamp"]),
            )
        )
    return sent


def of_java(java: list[str], plan: Path, given: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """What the Java engines publish."""
    file = plan.with_name("records.jsonl")
    file.write_text("\n".join(map(json.dumps, given)))
    done = subprocess.run(
        [*java, str(plan), str(file)], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    lines = map(json.loads, done.stdout.splitlines())
    return [(line["stage"], line["key"], line["value"]) for line in lines]


def setup(folder: Path, name: str, make: Any, engine: ModuleType) -> tuple[Path, Any]:
    """A plan of all stages of a domain, and records for it."""
    domain = load_domain(name).spec
    offsets = dict.fromkeys(domain.topics, (0,))
    pipeline = Pipeline(name="p", summary="-", engine="toy")
    plan = write_plan(ServiceSettings(), folder, "r", pipeline, domain, domain.stage_names, offsets)
    return plan, records(domain, make, engine)


DOMAINS = [("traffic", traffic), ("gem_packs", gem_packs)]


@pytest.mark.parametrize(("name", "make"), DOMAINS)
def test_every_kind_publishes_what_the_example_publishes(
    java: list[str], tmp_path: Path, name: str, make: Any
) -> None:
    engine = toy()
    plan, given = setup(tmp_path, name, make, engine)
    expected = Counter(of_toy(engine, json.loads(plan.read_text()), given))
    found = Counter(of_java(java, plan, given))
    stages = load_domain(name).spec.stage_names
    assert {stage for stage, *_ in found} == set(stages) - {"ingest"}
    assert found == expected


@pytest.mark.parametrize(("name", "make"), DOMAINS)
def test_records_that_are_read_again_make_no_other_outputs(
    java: list[str], tmp_path: Path, name: str, make: Any
) -> None:
    plan, given = setup(tmp_path, name, make, toy())
    once = of_java(java, plan, given)
    again = of_java(java, plan, [*given[:400], *given[300:]])
    assert len(again) > len(once)
    assert set(again) == set(once)
