"""`deploy/compose`, as far as it can be checked without a container engine."""

import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from services.definitions.engines import load_engines
from services.definitions.pipelines import load_pipeline
from services.generator.settings import GeneratorSettings
from services.runtime.ports import PORT_OFFSETS
from services.runtime.settings import ROOT, ServiceSettings
from tests.contract.compose import COMPOSE, FOLDER, PARTS, value_of
from tests.contract.service_settings import PREFIX, SETTINGS, service_of, unknown_settings

pytestmark = pytest.mark.contract

SCHEMA = Path(__file__).parent / "published" / "compose-spec.json"


def ours() -> dict[str, dict[str, Any]]:
    """The services of this repository, by their names in compose.yaml."""
    return {name: part for name, part in PARTS.items() if name.replace("-", "_") in SETTINGS}


def command_of(part: dict[str, Any]) -> list[str]:
    return [*part.get("entrypoint", []), *part.get("command", [])]


def test_the_file_is_what_the_compose_specification_says() -> None:
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(COMPOSE)] == []
    broken = COMPOSE | {"services": {"kafka": {"imagge": "typo"}}}
    assert not validator.is_valid(broken)


def test_every_service_of_ours_is_there_and_runs_its_own_command() -> None:
    assert {name.replace("-", "_") for name in ours()} == set(SETTINGS)
    for name, part in ours().items():
        service = name.replace("-", "_")
        assert service_of(command_of(part)) == service
        assert (ROOT / "services" / service / "__main__.py").is_file()
    # One of them builds the image of all.
    assert {part["image"] for part in ours().values()} == {PARTS["access"]["image"]}
    assert [name for name, part in ours().items() if "build" in part] == ["conductor"]


def test_every_setting_is_one_of_the_service_that_gets_it(monkeypatch) -> None:
    for name, part in ours().items():
        service, given = name.replace("-", "_"), part["environment"]
        assert unknown_settings(service, set(given)) == set(), name
        for variable, text in given.items():
            monkeypatch.setenv(variable, value_of(text))
        settings = SETTINGS[service]()
        assert (settings.bootstrap, settings.open_bootstrap) == ("kafka:9094", "kafka:9092")
        for variable in given:
            monkeypatch.delenv(variable)
    assert unknown_settings("generator", {f"{PREFIX}NO_SUCH_THING"}) == {"TIDEGAUGE_NO_SUCH_THING"}


def test_the_generator_finds_the_gateway(monkeypatch) -> None:
    monkeypatch.setenv(
        "TIDEGAUGE_GENERATOR_GATEWAY",
        PARTS["generator"]["environment"]["TIDEGAUGE_GENERATOR_GATEWAY"],
    )
    host, port = GeneratorSettings().gateway_address
    assert host in PARTS
    assert port == ServiceSettings().port("gateway_frames")
    assert PARTS["gateway"]["networks"] == PARTS["generator"]["networks"] == ["bus"]
    assert "ports" not in PARTS["gateway"]


def test_every_health_check_of_ours_asks_its_own_service() -> None:
    for name, part in ours().items():
        if name == "console":
            continue
        test = part["healthcheck"]["test"]
        assert test[:4] == ["CMD", "python", "-m", "services.runtime.probe"]
        assert test[4] == name.replace("-", "_")
        assert test[4] in PORT_OFFSETS
    # The probe runs every few seconds during measurements: a tenth of importing all of the
    # settings.
    heavy = "import sys, services.runtime.probe; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", heavy], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"False\n"
    assert all("healthcheck" in part for name, part in PARTS.items() if name not in EXEMPT)


EXEMPT = ("access", "console", "spark-worker")  # two exit, the third reports to its master


def test_nothing_is_published_beyond_loopback() -> None:
    published = [port for part in PARTS.values() for port in part.get("ports", [])]
    assert sorted(value_of(port) for port in published) == [
        "127.0.0.1:17072:17072",
        "127.0.0.1:3000:3000",
    ]
    assert ServiceSettings.model_fields["base_port"].default + PORT_OFFSETS["store"] == 17072
    assert all("network_mode" not in part for part in PARTS.values())


def test_secrets_come_from_files_and_never_from_the_environment() -> None:
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    for name, part in PARTS.items():
        for variable, text in part.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN", variable):
                assert variable.endswith("_FILE"), f"{name}: {variable}"
                assert text.startswith("/run/secrets/"), f"{name}: {variable}"
                assert text.rpartition("/")[2] in secrets_of(part), f"{name}: {variable}"


def secrets_of(part: dict[str, Any]) -> set[str]:
    return {each if isinstance(each, str) else each["source"] for each in part.get("secrets", [])}


def test_every_secret_volume_and_dependency_is_defined() -> None:
    for name, part in PARTS.items():
        assert secrets_of(part) <= set(COMPOSE["secrets"]), name
        assert set(part.get("depends_on", {})) <= set(PARTS), name
        for volume in part.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).exists(), f"{name}: {source}"
            else:
                assert source in COMPOSE["volumes"], f"{name}: {source}"


def test_the_store_finds_its_passwords_where_they_are_mounted() -> None:
    part = PARTS["store"]
    folder = Path(part["environment"]["TIDEGAUGE_DATA"]) / "secrets"
    mounted = {each["target"] for each in part["secrets"] if isinstance(each, dict)}
    assert mounted == {
        f"{folder}/{name}" for name in ("kafka", "clickhouse-reader", "clickhouse-admin")
    }


def test_the_conductor_can_ask_the_store_and_keep_its_notes() -> None:
    part = PARTS["conductor"]
    data = part["environment"]["TIDEGAUGE_DATA"]
    host, port = part["environment"]["TIDEGAUGE_STORE_URL"].removeprefix("http://").split(":")
    assert host in PARTS
    assert int(port) == ServiceSettings().base_port + PORT_OFFSETS["store"]
    assert [each["target"] for each in part["secrets"]] == [
        f"{data}/secrets/kafka",
        f"{data}/secrets/clickhouse-reader",
    ]
    assert [volume.split(":")[1] for volume in part["volumes"]] == [data]


def test_secrets_are_made_once_and_closed_to_others(tmp_path: Path) -> None:
    script = tmp_path / "make-secrets.sh"
    script.write_text((FOLDER / "make-secrets.sh").read_text())
    for _ in range(2):
        done = subprocess.run(["sh", script], capture_output=True, text=True, check=True)
    assert done.stdout == ""  # the second time there is nothing to create
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert set(made) == set(COMPOSE["secrets"])
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{32}", text) for text in made.values())
    assert len(set(made.values())) == 6
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


class Overlay(yaml.SafeLoader):
    """Reads an overlay file; whatever it removes is None."""


Overlay.add_constructor("!reset", lambda _loader, _node: None)


def test_without_a_server_the_store_has_its_own_engine_and_nobody_waits_for_what_is_gone() -> None:
    changed = yaml.load((FOLDER / "embedded.yaml").read_text(), Overlay)["services"]
    gone = {name for name, part in changed.items() if part is None}
    assert gone == {"clickhouse", "grafana"}
    assert set(changed) - gone == {"store"}
    store, before = changed["store"], PARTS["store"]
    assert set(store["environment"].values()) == set(store["depends_on"].values()) == {None}
    server = {name for name in before["environment"] if name.startswith("TIDEGAUGE_CLICKHOUSE_")}
    assert set(store["environment"]) == server
    for name, part in PARTS.items():
        waits_for = set(part.get("depends_on", {})) - set(
            (changed.get(name) or {}).get("depends_on", {})
        )
        assert name in gone or not gone & waits_for, name


@pytest.mark.parametrize(
    "path", sorted((FOLDER / "pipelines").glob("*.toml")), ids=lambda p: p.stem
)
def test_the_pipelines_are_valid(path: Path) -> None:
    pipeline = load_pipeline(str(path))
    assert pipeline.name == path.stem
    assert pipeline.spark_conf["spark.driver.host"] in PARTS
    master = pipeline.spark_conf["spark.master"].removeprefix("spark://").split(":")
    assert master[0] in PARTS
    assert master[1] in PARTS[master[0]]["command"]


def test_the_agent_and_the_console_have_the_same_pipelines_by_name() -> None:
    mounts = {
        f"./pipelines/{path.name}:/opt/tidegauge/pipelines/{path.name}:ro"
        for path in (FOLDER / "pipelines").iterdir()
    }
    for name in ("runner", "console"):
        given = {each for each in PARTS[name]["volumes"] if each.startswith("./pipelines")}
        assert given == mounts, name
    assert "pipelines" in copied()


def test_the_pipeline_on_a_cluster_is_the_one_without_but_for_the_cluster() -> None:
    path = FOLDER / "pipelines" / "spark-microbatch-cluster.toml"
    there, here = load_pipeline(str(path)), load_pipeline("spark-microbatch")
    own = {name: getattr(here, name) for name in ("name", "summary", "spark_conf")}
    assert there.model_copy(update=own) == here
    assert not here.spark_conf


DOCKERFILES = sorted((ROOT / "deploy" / "images").glob("Dockerfile*"))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_images_run_as_nobody_in_particular_and_copy_what_there_is(path: Path) -> None:
    lines = path.read_text().replace("\\\n", " ").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users[-1] == "10001:10001"
    assert any("useradd --uid 10001" in line for line in lines)  # Hadoop needs a user name
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for line in (line for line in lines if line.startswith("COPY") and "--from" not in line):
        for source in line.split()[1:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source.partition('/')[0]}" in allowed, f"{source} does not reach the builder"


def test_a_spark_image_of_ones_own_reaches_the_executors() -> None:
    given = PARTS["spark-master"]["build"]["args"]["SPARK_IMAGE"]
    text = (ROOT / "deploy" / "images" / "Dockerfile.executor").read_text()
    assert f"ARG SPARK_IMAGE={value_of(given)}\n" in text
    assert given.startswith("${SPARK_IMAGE:-")


def copied() -> list[str]:
    """The folders in every image."""
    return re.findall(r"^COPY (\w+) /opt", (ROOT / "deploy/images/Dockerfile").read_text(), re.M)


def test_the_images_have_every_folder_of_definitions() -> None:
    homes = {engine.folder.relative_to(ROOT).parts[0] for engine in load_engines().values()}
    assert {"domains", "workloads", "pipelines", "suites", "studies", *homes} <= set(copied())


def test_every_program_that_a_pipeline_names_is_in_the_image() -> None:
    commands = [
        load_pipeline(path.stem).settings["command"]
        for path in sorted((ROOT / "pipelines").glob("*.toml"))
        if load_pipeline(path.stem).engine in ("external", "socket")
    ]
    assert commands
    for command in commands:
        assert Path(command[1]).parts[0] in copied()
        assert (ROOT / command[1]).is_file()


def test_the_images_set_what_the_services_read() -> None:
    text = (ROOT / "deploy" / "images" / "Dockerfile").read_text()
    names = set(re.findall(rf"({PREFIX}[A-Z_]+)=", text))
    assert names == {"TIDEGAUGE_DATA", "TIDEGAUGE_HOST"}
    assert unknown_settings("conductor", names) == set()
