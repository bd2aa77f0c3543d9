"""An engine: `python engine.py PLAN` runs the plan's stages as one job of Flink.

`statements.py` generates the SQL, PyFlink submits it, and Flink's REST interface reports progress.
The cluster runs inside one JVM, a child of this process.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from cluster import Job, JobEndedError, Jvm, Source, configuration, free_port, java_properties
from sql import CannotError
from statements import Statements

STARTING_S, RUNNING_S, REASON_CHARACTERS = 0.2, 1.0, 5_000


def say(**line: Any) -> None:
    """Print one line of the contract."""
    print(json.dumps(line), flush=True)


def failed(reason: str) -> int:
    """Print `failed`."""
    print(reason, file=sys.stderr, flush=True)
    say(event="failed", reason=reason[:REASON_CHARACTERS])
    return 1


def end_with_parent() -> None:
    """Exit at the end of standard input. The JVM notices and exits too."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def submit(statements: Statements, flink: dict[str, str], gateway: int) -> str:
    """Start the job; returns its id. gateway: port of the JVM's gateway."""
    os.environ["PYFLINK_GATEWAY_PORT"] = str(gateway)
    # No function of the job is in Python: without this, PyFlink serves one at every address.
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112
    from py4j.protocol import Py4JError
    from pyflink.common import Configuration
    from pyflink.java_gateway import get_gateway
    from pyflink.table import EnvironmentSettings, TableEnvironment

    conf = Configuration()
    for key, value in flink.items():
        conf.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf)
    tables = TableEnvironment.create(settings.build())
    for statement in statements.created:
        tables.execute_sql(statement)
    inserts = tables.create_statement_set()
    for statement in statements.inserts.values():
        inserts.add_insert_sql(statement)
    job_id = str(inserts.execute().get_job_client().get_job_id())
    # Close the gateway, which is no longer needed: any client of it can run code in the JVM. The
    # callback connection stays open, because the JVM uses it to check that this process is alive.
    logging.disable()
    with contextlib.suppress(Py4JError):  # the response comes over the connection being closed
        get_gateway().java_gateway_server.shutdown(False)
    return job_id


class Progress:
    """Prints `ready` once all partitions are read, and then the progress of each stage on every
    call."""

    def __init__(self, plan: dict[str, Any], tables: dict[str, tuple[str, ...]]) -> None:
        topics = {one["name"]: one["topic"] for one in plan["domain"]["inputs"]}
        self._partitions = {
            table: len(plan["start_offsets"][topics[table.partition("_")[2]]])
            for each in tables.values()
            for table in each
        }
        self._tables = tables
        self._records = dict.fromkeys(tables, 0)
        self.is_ready = False

    def look(self, job: Job) -> None:
        """Query the job and print its progress."""
        vertices = job.vertices()
        if not self.is_ready:
            if any(each["status"] != "RUNNING" for each in vertices):
                return
            sources = job.sources(vertices)
            is_read = [
                table in sources and sources[table].partitions >= count
                for table, count in self._partitions.items()
            ]
            if all(is_read):
                self.is_ready = True
                say(event="ready", detail={"tasks": len(vertices)})
        else:
            self._say(job.sources(vertices), job.heap_used_mb())

    def _say(self, sources: dict[str, Source], heap_used_mb: float) -> None:
        for stage, tables in self._tables.items():
            found = [sources[table] for table in tables if table in sources]
            records = sum(each.records for each in found)
            line: dict[str, Any] = {"input_rows": max(0, records - self._records[stage])}
            self._records[stage] = records
            lags = [each.lag for each in found if each.lag is not None]
            watermarks = [each.watermark for each in found if each.watermark is not None]
            if lags:
                line["lag_records"] = sum(lags)
            if watermarks and len(watermarks) == len(found):
                line["watermark"] = min(watermarks)
            say(event="progress", stage=stage, **line, detail={"heap_used_mb": heap_used_mb})


def watch(job: Job, jvm: Jvm, progress: Progress, stop: threading.Event) -> int:
    """Run until stopped or until the job ends; returns the exit code."""
    while not stop.wait(RUNNING_S if progress.is_ready else STARTING_S):
        try:
            progress.look(job)
        except JobEndedError:
            if jvm.code is None:
                return failed(f"the Flink job ended: {jvm.cause or 'Flink reported no cause'}")
        except OSError as error:
            print(f"Flink's REST interface did not respond: {error}", file=sys.stderr, flush=True)
        if jvm.code is not None:
            # Not `failed`: a killed JVM may be restarted.
            print(f"Flink's JVM ended with exit code {jvm.code}", file=sys.stderr, flush=True)
            return 1
    return 0


def main() -> int:
    """Run the plan until stopped."""
    plan_file = Path(sys.argv[-1]).resolve()
    plan = json.loads(plan_file.read_text())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=end_with_parent, daemon=True).start()
    settings, folder = plan["pipeline"], Path(plan["folder"])
    try:
        statements = Statements(plan, str(plan_file), java_properties(plan["properties"]))
    except CannotError as error:
        return failed(str(error))
    jvm = Jvm(settings["heap_mb"], folder / "scratch")
    rest = free_port()
    flink = configuration(
        settings,
        folder,
        rest,
        has_watermark=statements.has_watermark,
        longest_window_s=statements.longest_window_s,
    )
    try:
        job = Job(rest, submit(statements, flink, jvm.port))
    except Exception as error:  # py4j raises many types; each means that there is no job
        return 1 if jvm.code is not None else failed(f"the Flink job could not be started: {error}")
    code = watch(job, jvm, Progress(plan, statements.tables), stop)
    if settings["guarantee"] == "exactly-once":
        job.cancel()  # readers of the outputs would wait for the end of its transactions
    jvm.stop()
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # PyFlink would look for the closed gateway
