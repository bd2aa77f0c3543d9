"""Starts the contents of `deploy/compose` as processes: Kafka with the settings of the file, and
the command of every container with its environment and secrets. Only addresses and folders are
local."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.runtime.settings import ROOT, ServiceSettings
from tests.contract.compose import COMPOSE, FOLDER, PARTS, kafka_properties, value_of
from tests.contract.test_kubernetes import BASE, named
from tests.integration.kafka_broker import Broker, free_base_port

DATA = PARTS["conductor"]["environment"]["TIDEGAUGE_DATA"]
COMMAND_TIMEOUT_S = 170


@dataclass(frozen=True)
class Containers:
    """Settings of the services (`kafka`), the parent folder of all containers, and the secrets'
    folder."""

    kafka: ServiceSettings
    folder: Path
    secrets: Path

    def environment(self, name: str) -> dict[str, str]:
        """Environment of a container."""
        here = {
            "TIDEGAUGE_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "TIDEGAUGE_KAFKA_OPEN_BOOTSTRAP": self.kafka.open_bootstrap,
            "TIDEGAUGE_HOST": "127.0.0.1",
            "TIDEGAUGE_DATA": str(self.data(name)),
            "TIDEGAUGE_STORE_URL": f"http://127.0.0.1:{self.kafka.port('store')}",
            "TIDEGAUGE_GENERATOR_GATEWAY": f"127.0.0.1:{self.kafka.port('gateway_frames')}",
        }
        # No ClickHouse server is available here, so the store uses the embedded engine.
        given = {
            key: here.get(key, value_of(text))
            for key, text in PARTS[name]["environment"].items()
            if "CLICKHOUSE" not in key
        }
        own = {"TIDEGAUGE_BASE_PORT": str(self.kafka.base_port), "PYTHONPATH": str(ROOT)}
        kept = {key: text for key, text in os.environ.items() if not key.startswith("TIDEGAUGE_")}
        return kept | given | own

    def data(self, name: str) -> Path:
        """Data folder of a container, with its mounted secrets. They are not readable by others,
        because no mount is read-only here."""
        folder = self.folder / name
        for each in PARTS[name].get("secrets", []):
            if isinstance(each, dict):
                path = folder / Path(each["target"]).relative_to(DATA)
                if path.exists():  # a process may be reading it
                    continue
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                shutil.copyfile(self.secrets / each["source"], path)
                path.chmod(0o600)
        return folder

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        """Start a container's command."""
        return subprocess.Popen(_here(PARTS[name]["command"]), env=self.environment(name))

    def run(self, name: str, words: list[str]) -> "subprocess.CompletedProcess[str]":
        """Run a command, such as a health check, in a container until it ends."""
        return subprocess.run(
            _here(words),
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def console(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`docker compose run --rm console …`."""
        return self.run("console", [*PARTS["console"]["entrypoint"], *arguments])


def _here(words: list[str]) -> list[str]:
    """A command of compose.yaml with this environment's interpreter."""
    words = words[1:] if words[0] == "CMD" else words
    assert words[0] == "python"
    return [sys.executable, *words[1:]]


@contextmanager
def kafka_of_compose(folder: Path) -> Iterator[Containers]:
    """Kafka as in compose.yaml, and nothing else: no logins exist yet."""
    with _kafka(folder, kafka_properties()) as containers:
        yield containers


@contextmanager
def kafka_of_kubernetes(folder: Path) -> Iterator[Containers]:
    """Kafka with the listeners, users and providers of kafka.yaml, named as Strimzi names them. Its
    listeners for brokers need certificates and are replaced with that of compose.yaml."""
    kafka = named(BASE, "Kafka", "tidegauge")["spec"]["kafka"]
    names = {each["name"]: f"{each['name'].upper()}-{each['port']}" for each in kafka["listeners"]}
    opened, internal = names["open"], names["internal"]
    properties = {
        name: value
        for name, value in kafka_properties().items()
        if not name.startswith(("listener.name.internal.", "config.providers"))
    }
    # The brokers' login among themselves comes from compose.
    own = properties["listener.name.controller.plain.sasl.jaas.config"]
    brokers = own.replace("/run/secrets", "/mnt/passwords")
    properties |= {
        "listeners": f"{opened}://0.0.0.0:9092,{internal}://0.0.0.0:9094,"
        "CONTROLLER://0.0.0.0:9093,REPLICATION://0.0.0.0:9091",
        "advertised.listeners": f"{opened}://kafka:9092,{internal}://kafka:9094,"
        "REPLICATION://kafka:9091",
        "inter.broker.listener.name": "REPLICATION",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,REPLICATION:SASL_PLAINTEXT,"
        f"{internal}:SASL_PLAINTEXT,{opened}:PLAINTEXT",
        "listener.name.controller.plain.sasl.jaas.config": brokers,
        "listener.name.replication.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.replication.plain.sasl.jaas.config": brokers,
        "super.users": ";".join(f"User:{user}" for user in kafka["authorization"]["superUsers"]),
    }
    (login,) = [each for each in kafka["listeners"] if "authentication" in each]
    for name, value in login["authentication"]["listenerConfig"].items():
        properties[f"listener.name.{internal.lower()}.{name}"] = value
    for name, value in kafka["config"].items():
        properties[name] = str(value).lower() if isinstance(value, bool) else str(value)
    with _kafka(folder, properties) as containers:
        yield containers


@contextmanager
def _kafka(folder: Path, properties: dict[str, str]) -> Iterator[Containers]:
    script = folder / "make-secrets.sh"
    shutil.copyfile(FOLDER / script.name, script)
    subprocess.run(["sh", script], check=True, stdout=subprocess.DEVNULL)
    secrets = folder / "secrets"
    assert {path.name for path in secrets.iterdir()} == set(COMPOSE["secrets"])
    base_port = free_base_port()
    local = ServiceSettings(base_port=base_port, kafka_bootstrap="", data=folder)
    settings = ServiceSettings(
        base_port=base_port,
        kafka_bootstrap=local.bootstrap,
        kafka_open_bootstrap=local.open_bootstrap,
        data=folder,
    )
    broker = Broker(settings, _text(properties, settings, secrets))
    try:
        broker.await_answer()
        yield Containers(settings, folder, secrets)
    finally:
        broker.close()


def _text(properties: dict[str, str], settings: ServiceSettings, secrets: Path) -> str:
    """Kafka's properties with local addresses and folders, as `Broker` expects them."""
    here = {
        "0.0.0.0": "127.0.0.1",
        "kafka:": "127.0.0.1:",
        ":9091": f":{settings.port('kafka_metrics')}",
        ":9092": f":{settings.port('kafka')}",
        ":9093": f":{settings.port('kafka_controller')}",
        ":9094": f":{settings.port('kafka_internal')}",
        "/run/secrets": str(secrets),
        "/mnt/passwords": str(secrets),
        "/mnt": str(secrets),
        "/var/lib/kafka/data": str(settings.data / "log"),
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    for there, replaced in here.items():
        text = text.replace(there, replaced)
    return text.replace("{", "{{").replace("}", "}}")
