"""`deploy/compose` by a real container engine: a run, a watch, a killed service, an upgrade.

./tidegauge test deploy

ClickHouse's server and Grafana come only from their official images. Where these cannot be pulled,
the store embeds the engine and draws the dashboards (`embedded.yaml`).
"""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.local.processes import wait_until
from services.runtime.settings import ROOT
from tests.contract.compose import PARTS
from tests.deploy.base_images import LOCAL, base_images
from tests.deploy.container_engine import ContainerEngine, container_engine, run
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.deploy

FILES = ("compose.yaml", "embedded.yaml")
LEFT_OUT = ("clickhouse", "grafana", "console", "access", "spark-master", "spark-worker")
STARTED = tuple(name for name in PARTS if name not in LEFT_OUT)
START_TIMEOUT_S = 3600
COMMAND_TIMEOUT_S = 600
DEADLINE_S = 300
RUN = ("run", "smoke")  # its limits are those of a busy machine
ENGINE = "kafka-streams"  # put into the image besides Spark
SHOP = "shop:9092"
WATCH = f"""\
name = "orders"
[kafka]
bootstrap = "{SHOP}"
[[inputs]]
topic = "orders"
format = "json"
identity = ["value.order.id"]
[[outputs]]
topic = "shipped"
format = "json"
identity = ["key"]
"""
SHOP_BROKER = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093",
    "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{SHOP}",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
    "CLUSTER_ID": "c2hvcC1vZi10aGUtdGVzdA",
    "KAFKA_HEAP_OPTS": "-Xmx256m",
}


@dataclass(frozen=True)
class Containers:
    """The containers of compose.yaml. folder: a copy of what the images are built from; environ:
    variables of the commands."""

    engine: ContainerEngine
    folder: Path
    environ: dict[str, str]

    @property
    def project(self) -> str:
        """Prefix of networks, volumes and containers."""
        return self.environ["COMPOSE_PROJECT_NAME"]

    def compose(self, *words: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """The output of a command of Compose. Raises CalledProcessError."""
        return run(self.command(*words), self.environ, timeout_s)

    def command(self, *words: str) -> list[str]:
        """A command of Compose with the files of this deployment."""
        files = [f"--file={self.folder / 'deploy' / 'compose' / name}" for name in FILES]
        return [*self.engine.compose, *files, *words]

    def console(self, *words: str) -> str:
        """The output of a verb in the console's container, as a user runs it."""
        return self.compose("run", "--rm", "--no-TTY", "console", *words)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a query in the console's container."""
        return [json.loads(line) for line in self.console("sql", sql, "--json").splitlines()]

    def python(self, service: str, program: str) -> str:
        """The output of a Python program in the container of a service."""
        return self.compose("exec", "--no-TTY", service, "python", "-c", program)

    def runs(self) -> set[str]:
        """Ids of all runs."""
        return {row["run_id"] for row in self.rows("SELECT run_id FROM runs")}

    def inspected(self, service: str) -> dict[str, Any]:
        """What the engine says of a container."""
        container = self.compose("ps", "--all", "--quiet", service)
        described: dict[str, Any] = json.loads(self.engine.docker("inspect", container))[0]
        return described

    def up(self) -> None:
        """Start what is not running as it should, and wait until all is healthy."""
        self.compose("up", "--detach", "--wait", timeout_s=START_TIMEOUT_S)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """All services, healthy."""
    place = tmp_path_factory.mktemp("deploy")
    folder = place / "tidegauge"
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    subprocess.run(["sh", str(folder / "deploy/compose/make-secrets.sh")], check=True)
    with container_engine() as engine:
        environ = {
            **engine.environ,
            **base_images(engine),
            "COMPOSE_PROJECT_NAME": f"tidegauge-test-{os.getpid()}",
            "TIDEGAUGE_IMAGE": f"{LOCAL}/services:{os.getpid()}",
            "TIDEGAUGE_EXECUTOR_IMAGE": f"{LOCAL}/executor:{os.getpid()}",
            "TIDEGAUGE_ENGINES": ENGINE,
            "TIDEGAUGE_SQL_PORT": str(free_base_port()),
        }
        started = Containers(engine, folder, environ)
        try:
            started.compose("build", "conductor", timeout_s=START_TIMEOUT_S)
            started.up()
            yield started
        finally:
            subprocess.run(
                started.command("--profile", "*", "down", "--volumes", "--timeout", "5"),
                env=environ,
                check=True,
            )
            for name in ("TIDEGAUGE_EXECUTOR_IMAGE", "TIDEGAUGE_IMAGE"):
                engine.docker("image", "rm", "--force", environ[name])


def test_every_container_is_healthy_under_its_restrictions(containers: Containers) -> None:
    for name in STARTED:
        found = containers.inspected(name)
        assert found["State"]["Health"]["Status"] == "healthy", name
        host = found["HostConfig"]
        assert host["ReadonlyRootfs"], name
        assert host["CapDrop"] == ["ALL"], name
        assert host["CapAdd"] is None, name
        assert "no-new-privileges:true" in host["SecurityOpt"], name
        assert not host["Privileged"], name
        assert min(host["Memory"], host["NanoCpus"], host["PidsLimit"]) > 0, name
        assert found["Config"]["User"] == PARTS[name]["user"], name
        assert found["RestartCount"] == 0, name
    ports = [
        (name, each["HostIp"])
        for name in STARTED
        for bound in containers.inspected(name)["NetworkSettings"]["Ports"].values()
        for each in bound or ()
    ]
    assert ports == [("store", "127.0.0.1")]


SEEN_FROM_INSIDE = """
import json, os, socket
def refused(act):
    try:
        act()
    except OSError as error:
        return error.strerror or str(error)
fields = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(json.dumps({
    "user": os.getuid(),
    "capabilities": int(fields["CapEff"], 16) | int(fields["CapBnd"], 16),
    "seccomp": fields["Seccomp"].strip(),
    "no_new_privileges": fields["NoNewPrivs"].strip(),
    "write": [refused(lambda: open(path, "w")) for path in ("/x", "/opt/tidegauge/x", "/etc/x")],
    "way_out": refused(lambda: socket.create_connection(("192.0.2.1", 443), 5)),
    "password": oct(os.stat("/var/lib/tidegauge/secrets/kafka").st_mode & 0o222),
}))
"""


@pytest.mark.parametrize("service", ["generator", "gateway", "runner", "evaluator", "collector"])
def test_a_service_can_do_no_more_than_it_needs(containers: Containers, service: str) -> None:
    seen = json.loads(containers.python(service, SEEN_FROM_INSIDE))
    # Engines drop the packets, newer ones have no route.
    assert seen.pop("way_out") in ("timed out", "Network is unreachable")
    assert seen == {
        "user": 10001,
        "capabilities": 0,
        "seccomp": "2",
        "no_new_privileges": "1",
        "write": ["Read-only file system"] * 3,
        "password": oct(0o200),
    }


def test_a_run_is_valid_and_the_dashboards_are_served(containers: Containers) -> None:
    text = containers.console(*RUN)
    assert "VALID: every expected output was published once, exact and in time." in text
    (row,) = containers.rows("SELECT count() AS runs, countIf(valid) AS valid FROM runs")
    assert row["runs"] == row["valid"] == 1
    used = containers.rows(
        "SELECT service, sum(cpu_seconds) AS cpu_s FROM results_resources"
        " WHERE run_id != '' GROUP BY service"
    )
    assert {"machine", "collector", "runner", "sampler"} == {row["service"] for row in used}
    of_pipelines = (
        "SELECT sum(cpu_seconds) AS cpu_s, max(heap_used_bytes) AS heap FROM results_resources"
        " WHERE run_id != '' AND pipeline != ''"
    )
    (row,) = containers.rows(of_pipelines)
    assert row["cpu_s"] > 1
    assert row["heap"] > 10_000_000
    port = containers.environ["TIDEGAUGE_SQL_PORT"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=10) as answer:
        assert answer.read() == b"Ok.\n"


def test_an_engine_that_was_put_into_the_image_runs(containers: Containers) -> None:
    text = containers.console(*RUN, "--pipeline", ENGINE)
    assert "VALID: every expected output was published once, exact and in time." in text


KILL_SERVICE = """
import os, signal
for name in filter(str.isdigit, os.listdir("/proc")):
    words = open(f"/proc/{name}/cmdline").read().split("\\0")
    if words[1:3] == ["-m", "services.evaluator"] and name != "1":
        os.kill(int(name), signal.SIGKILL)
"""


def test_a_run_survives_a_killed_evaluator(containers: Containers) -> None:
    before = containers.inspected("evaluator")["RestartCount"]
    runs = len(containers.runs())
    process = subprocess.Popen(
        containers.command("run", "--rm", "--no-TTY", "console", *RUN, "--duration", "60"),
        env=containers.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        measured = "SELECT uniqExact(run_id) AS runs FROM latency_by_second WHERE phase = 'measure'"
        assert wait_until(lambda: containers.rows(measured)[0]["runs"] > runs, DEADLINE_S)
        containers.python("evaluator", KILL_SERVICE)
        text, _errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 0, text
    assert containers.inspected("evaluator")["RestartCount"] == before + 1
    (row,) = containers.rows("SELECT count() AS runs, countIf(valid) AS valid FROM runs")
    assert row["runs"] == row["valid"]


@pytest.fixture
def shop(containers: Containers) -> Iterator[None]:
    """A broker of somebody else, on the network that the watcher may use, and its two topics."""
    name = f"{containers.project}-shop"
    variables = [f"--env={key}={value}" for key, value in SHOP_BROKER.items()]
    network = f"--network={containers.project}_outside"
    image = containers.environ["KAFKA_IMAGE"]
    options = (network, "--network-alias=shop", *variables)
    names = (name, f"{name}-sales")
    try:
        containers.engine.docker("run", "--detach", *options, f"--name={names[0]}", image)
        containers.engine.docker(
            # Again until the broker listens.
            *("run", "--detach", "--restart=on-failure", network, f"--name={names[1]}"),
            containers.environ["TIDEGAUGE_IMAGE"],
            *("python", "/opt/tidegauge/examples/watched/shop.py", SHOP),
        )
        yield
    finally:
        containers.engine.docker("rm", "--force", *names)


def test_topics_of_another_cluster_are_watched(containers: Containers, shop: None) -> None:
    keep = containers.command(
        "exec", "--no-TTY", "watcher", "python", "-m", "services.watcher", "keep", "/dev/stdin"
    )
    subprocess.run(keep, env=containers.environ, input=WATCH, text=True, check=True)
    paired = (
        "SELECT sum(count) AS outputs FROM latency_by_second WHERE run_id LIKE 'watch-orders-%'"
    )
    assert wait_until(lambda: int(containers.rows(paired)[0]["outputs"] or 0) > 10, DEADLINE_S)
    containers.compose(
        *("exec", "--no-TTY", "watcher", "python", "-m", "services.watcher", "end", "orders")
    )


def test_a_run_is_valid_on_a_spark_cluster(containers: Containers) -> None:
    cluster = ("--profile", "spark-cluster")
    containers.compose(*cluster, "build", "spark-master", timeout_s=START_TIMEOUT_S)
    containers.compose(*cluster, "up", "--detach", "--wait", timeout_s=START_TIMEOUT_S)
    text = containers.console(*RUN, "--pipeline", "spark-microbatch-cluster")
    assert "VALID: every expected output was published once, exact and in time." in text
    containers.compose(*cluster, "rm", "--stop", "--force", "spark-master", "spark-worker")


def test_an_upgrade_keeps_what_was_measured(containers: Containers) -> None:
    before = containers.runs()
    image = containers.inspected("conductor")["Image"]
    newer = containers.folder.parent / "newer"
    newer.mkdir()
    tag = containers.environ["TIDEGAUGE_IMAGE"]
    (newer / "Dockerfile").write_text(f"FROM {tag}\nLABEL newer=1\n")
    containers.engine.docker("build", "--quiet", "--tag", tag, str(newer))
    containers.up()
    assert containers.inspected("conductor")["Image"] != image
    assert containers.runs() == before
    assert "VALID: every expected output" in containers.console(*RUN)
    after = containers.runs()
    assert before < after
    assert len(after) == len(before) + 1
