"""A pipeline that is no part of Tidegauge: `python -m services.external_pipeline PLAN`.

Starts the program that `pipelines/NAME.toml` of this machine names, tells it in its environment
what it needs, and ends with it; without a command there is nothing to start, because the program
runs already. Says that it is ready at once: whether the program works is for its outputs to show,
which the conductor watches. Ends on SIGTERM or with its parent, and the program with it: one that
went on would publish into every later run.

    TIDEGAUGE_KAFKA_BOOTSTRAP   host:port[,host:port]
    TIDEGAUGE_RUN_ID            the run
    TIDEGAUGE_STAGES            stages to publish, for example `ingest,parse`
    TIDEGAUGE_OUTPUT            what precedes the stage in the name of an output topic
    TIDEGAUGE_START_OFFSETS     JSON: by input topic the offset of each partition to begin at
    TIDEGAUGE_KAFKA_PROPERTIES  JSON: librdkafka's properties, if the client needs any
    TIDEGAUGE_PLAN              a file with all of this and the domain (schemas/engine.py)

Of the rest of the environment it gets what programs need to run, so no secrets. It may say
progress and failures as an engine's program does.
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
from services.runtime.program import end_with_parent, read_plan
from services.runtime.settings import ROOT
from services.runtime.stopping import stop_on_signals

WATCH_INTERVAL_S = 0.25
STOP_TIMEOUT_S = 10.0
EXIT_STOPPED = 0
EXIT_FAILED = 1


def main() -> int:
    """Run the program until told to stop; 1 with a line that says why when it ends before."""
    plan = read_plan()
    stop = stop_on_signals()
    command = plan.pipeline.settings.get("command", ())
    assert isinstance(command, tuple)
    try:
        told = dict(os.environ) | variables(plan, Path(sys.argv[-1]))
        process = start(command, told) if command else None
    except OSError as error:
        print(f"{plan.pipeline.name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    # Only now, so that it knows the program; a parent that is gone already is noticed as well.
    end_with_parent(lambda: kill(process))
    # On the program's own standard output, which is a pipe to the runner: one write of one line.
    os.write(sys.stdout.fileno(), b'{"event": "ready"}\n')
    code = watch(process, stop)
    if code is not None:
        # The program's own last words stay the last line of the log: they say why.
        return code or EXIT_FAILED
    return EXIT_STOPPED


def variables(plan: EnginePlan, path: Path) -> dict[str, str]:
    """What the program is told."""
    told = {
        "TIDEGAUGE_KAFKA_BOOTSTRAP": plan.bootstrap,
        "TIDEGAUGE_RUN_ID": plan.run_id,
        "TIDEGAUGE_STAGES": ",".join(plan.outputs),
        "TIDEGAUGE_OUTPUT": catalogue.output_topic(plan.pipeline.name, ""),
        "TIDEGAUGE_START_OFFSETS": json.dumps(plan.start_offsets),
        "TIDEGAUGE_PLAN": str(path),
    }
    if plan.properties:
        told["TIDEGAUGE_KAFKA_PROPERTIES"] = json.dumps(plan.properties)
    return told


def start(command: Sequence[str], variables: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the program in this process's group, its output where ours goes. Raises OSError."""
    return subprocess.Popen(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL)


def kill(process: "subprocess.Popen[bytes] | None") -> None:
    """Kill the program, and what it has started itself where this process leads its group."""
    if process is not None:
        process.kill()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


def watch(process: "subprocess.Popen[bytes] | None", stop: Event) -> int | None:
    """Wait until `stop`, then stop the program; or return the code with which it ended before."""
    while not stop.wait(WATCH_INTERVAL_S):
        if process is not None and process.poll() is not None:
            return process.returncode
    if process is not None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return None


if __name__ == "__main__":
    sys.exit(main())
