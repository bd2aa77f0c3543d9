"""Flink's JVM, with an embedded cluster, and the state of the job from its REST interface."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sql import CannotError

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S, STOP_TIMEOUT_S, REST_TIMEOUT_S, CANCEL_TIMEOUT_S = 120, 5, 10, 5
POLL_S = 0.05
TOLD = "tidegauge: "  # prefix of RecordReader's lines for the runner
METRICS_MS = 500  # maximum age
WANTED = ("].numRecordsIn", "].pendingRecords", "].currentOutputWatermark")
# The jar of Flink's connector contains Kafka's classes in a shaded package.
PACKAGE = "org.apache.flink.kafka.shaded.org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{PACKAGE}.scram.ScramLoginModule",
}


class Jvm:
    """The JVM that PyFlink connects to. It checks every second whether this process is alive, and
    exits when it is not.

    PyFlink's own launcher sets no heap size and does not read the JVM's output. port: of its
    gateway. cause: the innermost cause of the last error in its output.
    """

    def __init__(self, heap_mb: int, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        told = Path(tempfile.mkdtemp(dir=scratch)) / "port"
        self.cause = ""
        self.process = subprocess.Popen(
            _command(heap_mb, scratch),
            env=os.environ | {"_PYFLINK_CONN_INFO_PATH": str(told)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._log, daemon=True).start()
        self.port = self._port(told)

    def _log(self) -> None:
        """Copy output to the pipeline's log, except for lines of the contract."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(TOLD):
                os.write(1, line.removeprefix(TOLD).encode())
                continue
            sys.stderr.write(line)
            if line.startswith("Caused by: "):
                self.cause = line.removeprefix("Caused by: ").strip()

    def _port(self, told: Path) -> int:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (told.is_file() and told.stat().st_size >= 4):
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self.process.kill()
                raise RuntimeError(f"Flink's JVM did not start; its exit code is {self.code}")
            time.sleep(POLL_S)
        return int(struct.unpack("!I", told.read_bytes()[:4])[0])

    @property
    def code(self) -> int | None:
        """Exit code, None while it is running."""
        return self.process.poll()

    def stop(self) -> None:
        """Stop the JVM, and the job with it."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _command(heap_mb: int, scratch: Path) -> list[str]:
    from pyflink import pyflink_gateway_server as pyflink

    environment = dict(os.environ)
    pyflink.prepare_environment_variables(environment)
    # CLASSPATH contains the engine's classes and Flink's jars; this folder has their META-INF.
    gateway = next(Path(environment["FLINK_OPT_DIR"]).glob("flink-python-*.jar"))
    class_path = os.pathsep.join([environment["CLASSPATH"], str(HERE), str(gateway)])
    collector = environment.get("TIDEGAUGE_COLLECTOR", "-XX:+UseSerialGC")
    return [
        *(pyflink.find_java_executable(), f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", collector),
        f"-Djava.io.tmpdir={scratch}",
        *("-XX:+IgnoreUnrecognizedVMOptions", *pyflink.get_jvm_opts(environment)),
        "--add-opens=java.base/java.net=ALL-UNNAMED",
        f"-Dlog4j.configurationFile={HERE / 'log4j2.properties'}",
        *("-cp", class_path, "tidegauge.Loopback"),
        "org.apache.flink.client.python.PythonGatewayServer",
    ]


def configuration(
    settings: dict[str, Any],
    folder: Path,
    port: int,
    *,
    has_watermark: bool,
    longest_window_s: int,
) -> dict[str, str]:
    """Flink's settings for a pipeline. port: of the REST interface."""
    timeout_ms, ttl_s = settings["buffer_timeout_ms"], settings["state_ttl_s"]
    if ttl_s:  # 0: no limit
        ttl_s += longest_window_s
    found = {
        "parallelism.default": str(settings["parallelism"]),
        "taskmanager.numberOfTaskSlots": str(settings["parallelism"]),
        "execution.buffer-timeout.enabled": str(timeout_ms >= 0).lower(),
        "execution.buffer-timeout.interval": f"{max(0, timeout_ms)} ms",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "table.exec.state.ttl": f"{ttl_s} s",
        # Compute shared inputs of several outputs once, so a stage reads rows of the stage before
        # it.
        "table.optimizer.reuse-optimize-block-with-digest-enabled": "true",
        # The key of an output differs from the key of its query.
        "table.exec.sink.upsert-materialize": "NONE",
        "state.backend.type": settings["state_backend"],
        "restart-strategy.type": "none",
        "jobmanager.bind-host": "localhost",
        "taskmanager.bind-host": "localhost",
        "rest.address": "localhost",
        "rest.bind-address": "localhost",
        "rest.port": str(port),
        "rest.bind-port": str(port),
        "web.submit.enable": "false",
        "web.cancel.enable": "false",
        "metrics.fetcher.update-interval": f"{METRICS_MS} ms",
        "io.tmp.dirs": str(folder / "scratch"),
    }
    if has_watermark:
        found["pipeline.auto-watermark-interval"] = f"{settings['watermark_interval_ms']} ms"
        if settings["idle_timeout_ms"]:
            found["table.exec.source.idle-timeout"] = f"{settings['idle_timeout_ms']} ms"
    else:
        found["pipeline.auto-watermark-interval"] = "0 ms"
    if settings["checkpoint_interval_ms"]:
        found |= _checkpoints(settings["checkpoint_interval_ms"], folder / "checkpoints")
    return found


def _checkpoints(interval_ms: int, folder: Path) -> dict[str, str]:
    found = {
        "execution.checkpointing.interval": f"{interval_ms} ms",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": folder.as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    newest = newest_checkpoint(folder)
    if newest is not None:
        found["execution.state-recovery.path"] = newest.as_uri()
        found["execution.state-recovery.claim-mode"] = "CLAIM"
    return found


def newest_checkpoint(folder: Path) -> Path | None:
    """The folder of the newest complete checkpoint of any job."""
    found = [path for path in folder.glob("*/chk-*/_metadata") if path.stat().st_size]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else None


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


class JobEndedError(Exception):
    """The job and its cluster have ended."""


@dataclass(frozen=True)
class Source:
    """One source table. records: read since the job was started; lag: unread records; watermark:
    epoch milliseconds; partitions: number of partitions read. None if not known yet."""

    records: int
    lag: int | None
    watermark: int | None
    partitions: int


class Job:
    """The job, through the REST interface. Raises JobEndedError, and OSError if there is no
    response in time."""

    def __init__(self, port: int, job_id: str) -> None:
        self._address, self._path = f"http://localhost:{port}", f"/jobs/{job_id}"
        # Ignore the proxies of the environment.
        self._names: dict[str, list[str]] = {}  # of metrics, by source, once all exist
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def _ask(self, path: str, method: str = "GET", timeout_s: float = REST_TIMEOUT_S) -> Any:
        request = urllib.request.Request(self._address + path, method=method)
        try:
            with self._open(request, timeout=timeout_s) as answer:
                return json.load(answer)
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                raise JobEndedError from error
            raise

    def vertices(self, timeout_s: float = REST_TIMEOUT_S) -> list[dict[str, Any]]:
        """The tasks of the job: `id`, `name`, `status` and more."""
        job = self._ask(self._path, timeout_s=timeout_s)
        if job["state"] in ("FAILING", "FAILED", "CANCELED", "FINISHED"):
            raise JobEndedError
        found: list[dict[str, Any]] = job["vertices"]
        return found

    def cancel(self) -> None:
        """Cancel the job, so that it aborts its open transactions, and wait for its end, for about
        CANCEL_TIMEOUT_S."""
        deadline_s = time.monotonic() + CANCEL_TIMEOUT_S
        # The REST interface ends with the job, perhaps within an answer.
        with contextlib.suppress(JobEndedError, OSError, HTTPException, ValueError):
            self._ask(f"{self._path}?mode=cancel", "PATCH", CANCEL_TIMEOUT_S)
            while time.monotonic() < deadline_s:
                self.vertices(CANCEL_TIMEOUT_S)
                time.sleep(POLL_S)

    def sources(self, vertices: list[dict[str, Any]]) -> dict[str, Source]:
        """The source tables by name."""
        return {
            vertex["name"].removeprefix("Source: ").split("[")[0]: self._source(vertex["id"])
            for vertex in vertices
            if vertex["name"].startswith("Source: ")
        }

    def _source(self, vertex: str) -> Source:
        path = f"{self._path}/vertices/{vertex}/subtasks/metrics"
        names = self._names.get(vertex) or [one["id"] for one in self._ask(path)]
        partitions = sum(
            ".KafkaSourceReader.topic." in each and each.endswith(".currentOffset")
            for each in names
        )
        wanted = [each for each in names if each.startswith("Source__") and each.endswith(WANTED)]
        if len(wanted) == len(WANTED):
            self._names[vertex] = names
        found = self._ask(f"{path}?get={quote(','.join(wanted))}") if wanted else []
        values = {one["id"].rpartition("].")[2]: one for one in found}
        lag, watermark = values.get("pendingRecords"), values.get("currentOutputWatermark")
        return Source(
            int(values["numRecordsIn"]["sum"]) if "numRecordsIn" in values else 0,
            int(lag["sum"]) if lag else None,
            int(watermark["min"]) if watermark and watermark["min"] > 0 else None,
            partitions,
        )

    def heap_used_mb(self) -> float:
        """Used heap of the JVM, mebibytes."""
        found = self._ask("/jobmanager/metrics?get=Status.JVM.Memory.Heap.Used")
        return round(float(found[0]["value"]) / 2**20, 1) if found else 0.0


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties for Java. Raises CannotError."""
    if "ssl.certificate.location" in properties:
        raise CannotError("this engine does not support client certificates for Kafka")
    found: dict[str, str] = {}
    if "security.protocol" in properties:
        found["security.protocol"] = properties["security.protocol"].upper()
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")).upper()
    if mechanism:
        if mechanism not in MODULES:
            raise CannotError(f"this engine does not support the SASL mechanism {mechanism}")
        user, password = (
            _quoted(properties.get(f"sasl.{each}", "")) for each in ("username", "password")
        )
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = (
            f"{MODULES[mechanism]} required username={user} password={password};"
        )
    if "ssl.ca.location" in properties:
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.location"] = properties["ssl.ca.location"]
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
