"""A reader who follows the pages: a copy of this folder, a shell in it, and a running stack."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from services.runtime.clickhouse import query, store_url
from services.runtime.kafka import assigned_consumer, end_offsets
from services.runtime.settings import ROOT, ServiceSettings
from tests.documentation import blocks
from tests.end_to_end.command import CommandLine
from tests.end_to_end.documented import BENCHES, Done, Rule, changed, shortened
from tests.integration.grafana_double import GrafanaDouble, serving
from tests.integration.kafka_broker import Broker, free_base_port

TIMEOUT_S = 540
LEFT_OUT = (".*_cache", "__pycache__", ".git", ".hypothesis", ".jars", ".tidegauge", ".venv")
COMPOSE_DOWN = (
    "docker compose -f deploy/compose/compose.yaml --profile spark-cluster down --volumes"
)
INPUTS = ("traffic.flow", "traffic.speed")
RUN_IDS = "SELECT run_id FROM tidegauge.runs WHERE valid AND step_of = '' ORDER BY requested_at"


def copied(place: Path) -> Path:
    """A copy of this folder with the packages and jars of the original, shorter workloads, and the
    two files that the pages require."""
    copy = place / "tidegauge"
    ignored = shutil.ignore_patterns(*LEFT_OUT, "secrets")
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
    for name in (".venv", ".jars"):
        (copy / name).symlink_to((ROOT / name).resolve())
    for path in (copy / "workloads").glob("*.toml"):
        path.write_text(shortened(path.stem, path.read_text()))
    (evening,) = blocks(ROOT / "docs" / "write-a-workload.md", "toml")
    own = (copy / "pipelines" / "calibration.toml").read_text()
    theirs = copy / "path" / "to"
    theirs.mkdir(parents=True)
    (theirs / "evening.toml").write_text(shortened("evening", evening))
    (theirs / "my.toml").write_text(own.replace('name = "calibration"', 'name = "my"'))
    assert tomllib.loads((theirs / "my.toml").read_text())["name"] == "my"
    return copy


class Reader:
    """Runs commands, and keeps the stack in the state that they require.

    runs: what is running: nothing, a bare stack, or the suite of a page.
    """

    def __init__(self, place: Path, held: ExitStack) -> None:
        self.copy = copied(place)
        self.runs = "nothing"
        self._held = held
        self._port = free_base_port()
        self._second_port = free_base_port()
        self._kafka: ServiceSettings | None = None
        self.grafana = held.enter_context(serving(GrafanaDouble()))

    def prepare(self, page: str, rule: Rule) -> None:
        """Bring the stack and the results into the state that a command requires."""
        if rule.stack == "down" and self.runs != "nothing":
            self._down()
        if rule.stack == "up" and self.runs not in ("bare", page):
            self._down()
            self._managed("./tidegauge up --detach")
            self.runs = "bare"
        while len(self._run_ids() if rule.runs else ()) < rule.runs:
            self._managed("./tidegauge run smoke --pipeline calibration")
        if rule.runs > 1:  # the newest runs must be comparable
            for _number in range(rule.runs):
                self._managed("./tidegauge run smoke --pipeline calibration")

    def follow(self, page: str, line: str, rule: Rule) -> Done:
        """Run a command of a page."""
        command = changed(line, _Asked(self._values()))
        if rule.until:
            return self._until(command, rule.until)
        if "docker compose" in command:
            self._held.callback(self.shell, COMPOSE_DOWN)
        with self._flink() if "external:my-flink" in command else nullcontext():
            done = self.shell(command)
        if rule.leaves:
            self.runs = page if rule.leaves == "suite" else rule.leaves
        return done

    def shell(self, command: str, timeout_s: float = TIMEOUT_S) -> Done:
        """Result of a shell command in the copy; interrupted as by Ctrl-C after the timeout."""
        process = self._begin(command)
        try:
            text, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=60)
            raise
        return Done(process.returncode, text)

    def close(self) -> None:
        """Stop everything that is still running."""
        self.shell("./tidegauge down; ./tidegauge --data second down")

    def left(self) -> list[str]:
        """Processes of all stacks that were started here."""
        folders = (".tidegauge", "second", "own-kafka")
        return [
            process
            for folder in folders
            for process in CommandLine(self.copy / folder, self._port).processes()
        ]

    def _values(self) -> dict[str, Callable[[], str]]:
        """Values for CHANGES."""
        return {
            "before": lambda: self._run_ids()[-2],
            "newest": lambda: self._run_ids()[-1],
            "token": lambda: self.grafana.token,
            "grafana": lambda: self.grafana.url,
            "second_port": lambda: str(self._second_port),
            "store_port": lambda: str(self._settings().port("store")),
            "kafka": self._own_kafka,
        }

    def _settings(self) -> ServiceSettings:
        return ServiceSettings(base_port=self._port, data=self.copy / ".tidegauge")

    def _environment(self) -> dict[str, str]:
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TIDEGAUGE_") or name == "TIDEGAUGE_MAVEN_REPOSITORY"
        }
        own = {
            "TIDEGAUGE_BASE_PORT": str(self._port),
            "GRAFANA_TOKEN": self.grafana.token,
            "COMPOSE_PROJECT_NAME": "tidegauge-documented",
            "COLUMNS": "200",
            "PYTHONPATH": str(self.copy),  # the packages are those of another checkout
        }
        return ours | own | BENCHES

    def _begin(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.copy,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _until(self, command: str, said: str) -> Done:
        """Run a long-running command until it has printed `said`, then press Ctrl-C."""
        process = self._begin(command)
        lines: list[str] = []
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if re.search(said, line):
                    break
        finally:
            os.killpg(process.pid, signal.SIGINT)
            rest, _ = process.communicate(timeout=TIMEOUT_S)
        return Done(process.returncode, "".join(lines) + rest)

    def _down(self) -> None:
        self._managed("./tidegauge down")
        self.runs = "nothing"

    def _managed(self, command: str) -> None:
        done = self.shell(command)
        assert done.code == 0, done.text

    def _run_ids(self) -> list[str]:
        """Ids of valid runs, oldest first; the stack must be running."""
        return [row["run_id"] for row in query(store_url(self._settings()), RUN_IDS)]

    def _own_kafka(self) -> str:
        """Address of a broker that is not the stack's, and has no topics."""
        if self._kafka is None:
            folder = self.copy.parent / "broker"
            folder.mkdir()
            port = free_base_port()
            self._kafka = ServiceSettings(
                base_port=port, kafka_bootstrap=f"127.0.0.1:{port}", data=folder
            )
            broker = Broker(self._kafka)
            self._held.callback(broker.close)
            broker.await_answer()
        return self._kafka.bootstrap

    @contextmanager
    def _flink(self) -> Iterator[None]:
        """A running program that publishes stages 0 and 1 as `my-flink`."""
        settings = self._settings()
        consumer = assigned_consumer(settings, "tests")
        begin = {topic: end_offsets(consumer, topic) for topic in INPUTS}
        consumer.close()
        told = {
            "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.open_bootstrap,
            "TIDEGAUGE_STAGES": "ingest,parse",
            "TIDEGAUGE_OUTPUT": "output.my-flink.",
            "TIDEGAUGE_START_OFFSETS": json.dumps(begin),
            "PYTHONPATH": str(self.copy),
        }
        program = subprocess.Popen(
            [sys.executable, str(self.copy / "examples" / "external" / "pipeline.py")],
            env=self._environment() | told,
        )
        try:
            yield
            assert program.poll() is None, "the program ended by itself"
        finally:
            program.kill()
            program.wait()


class _Asked(dict[str, str]):
    """Values computed on access."""

    def __init__(self, makers: dict[str, Callable[[], str]]) -> None:
        super().__init__()
        self._makers = makers

    def __missing__(self, name: str) -> str:
        return self._makers[name]()
