"""Runs a pipeline that is not part of Tidegauge: `python -m services.external_pipeline PLAN`.

Starts the command from this machine's `pipelines/NAME.toml`, passes the run in environment
variables, and ends with it. Without a command the program is assumed to be running. It reports
ready at once; the conductor watches the outputs to see whether the program works. On SIGTERM or
when its parent ends it stops the program too, which would otherwise publish into every later run.

    TIDEGAUGE_KAFKA_BOOTSTRAP   host:port[,host:port]
    TIDEGAUGE_RUN_ID            the run
    TIDEGAUGE_STAGES            stages to publish, for example `ingest,parse`
    TIDEGAUGE_OUTPUT            prefix of output topics, followed by the stage
    TIDEGAUGE_START_OFFSETS     JSON: for each input topic the start offset of each partition
    TIDEGAUGE_KAFKA_PROPERTIES  JSON: librdkafka's properties, if the client needs any
    TIDEGAUGE_PLAN              a file with all of this and the domain (schemas/engine.py)

Other variables are filtered as for every engine, so no secrets are passed. The program may report
progress and failures like an engine's program.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from schemas import catalogue
from schemas.engine import EnginePlan
from services.runtime.process import stop_on_signals
from services.runtime.program import end_with_parent, read_plan
from services.runtime.settings import ROOT

WATCH_INTERVAL_S = 0.25
STOP_TIMEOUT_S = 10.0
EXIT_STOPPED = 0
EXIT_FAILED = 1


def main() -> int:
    """Run the program until told to stop; 1 with an error line if it ends earlier."""
    plan = read_plan()
    stop = stop_on_signals()
    command = plan.pipeline.settings.get("command", ())
    assert isinstance(command, tuple)
    try:
        environment = dict(os.environ) | variables(plan, Path(sys.argv[-1]))
        process = start(command, environment) if command else None
    except OSError as error:
        print(f"{plan.pipeline.name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    # Set after the start, so that it kills the program; it also detects a parent that already
    # ended.
    end_with_parent(lambda: kill(process))
    # The runner reads the program's standard output: write the line in one call.
    os.write(sys.stdout.fileno(), b'{"event": "ready"}\n')
    code = watch(process, stop)
    if code is not None:
        # Log nothing more: the program's last log line gives the cause.
        return code or EXIT_FAILED
    return EXIT_STOPPED


def variables(plan: EnginePlan, path: Path) -> dict[str, str]:
    """The environment variables of the program."""
    environment = {
        "TIDEGAUGE_KAFKA_BOOTSTRAP": plan.bootstrap,
        "TIDEGAUGE_RUN_ID": plan.run_id,
        "TIDEGAUGE_STAGES": ",".join(plan.outputs),
        "TIDEGAUGE_OUTPUT": catalogue.output_topic(plan.pipeline.name, ""),
        "TIDEGAUGE_START_OFFSETS": json.dumps(plan.start_offsets),
        "TIDEGAUGE_PLAN": str(path),
    }
    if plan.properties:
        environment["TIDEGAUGE_KAFKA_PROPERTIES"] = json.dumps(plan.properties)
    return environment


def start(command: Sequence[str], variables: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the program in this process group with this standard output. Raises OSError."""
    return subprocess.Popen(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL)


def kill(process: "subprocess.Popen[bytes] | None") -> None:
    """Kill the program, and its children if this process leads its process group."""
    if process is not None:
        process.kill()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


def watch(process: "subprocess.Popen[bytes] | None", stop: Event) -> int | None:
    """Wait until `stop`, then stop the program; or return its exit code if it ended earlier."""
    while not stop.wait(WATCH_INTERVAL_S):
        if process is not None and process.poll() is not None:
            return process.returncode
    if process is not None:
        stop_program(process)
    return None


def stop_program(process: "subprocess.Popen[bytes]") -> None:
    """Stop the program, if it still runs; kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
