"""A pipeline that is no part of Tidegauge: `python -m services.external_pipeline.__main__
--pipeline NAME --plan FILE`.

Starts the program that `pipelines/NAME.toml` of this machine names, tells it in its environment
what it needs, and ends with it; without a command there is nothing to start, because the program
runs already. Says READY at once: whether the program works is for its outputs to show, which the
conductor watches. Ends on SIGTERM or with its parent, and the program with it: one that went on
would publish into every later run.

    TIDEGAUGE_KAFKA_BOOTSTRAP   host:port[,host:port]
    TIDEGAUGE_RUN_ID            the run
    TIDEGAUGE_STAGES            stages to publish, for example `ingest,parse`
    TIDEGAUGE_OUTPUT            what precedes the stage in the name of an output topic
    TIDEGAUGE_START_OFFSETS     JSON: by input topic the offset of each partition to begin at
    TIDEGAUGE_KAFKA_PROPERTIES  JSON: librdkafka's properties; where Kafka is the user's own

Of the rest of the environment it gets what programs need to run (`KEPT`), so no secrets.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from schemas import catalogue, protocol
from schemas.pipeline import Pipeline
from schemas.protocol import RunPlan
from services.runtime.events import open_events
from services.runtime.program import EXIT_STOPPED, end_with_parent, read_arguments, stages_to_run
from services.runtime.settings import ROOT, ServiceSettings, load_settings
from services.runtime.stopping import stop_on_signals

WATCH_INTERVAL_S = 0.25
STOP_TIMEOUT_S = 10.0
EXIT_FAILED = 1
# What of our environment a program needs to run at all: where it lives, its language, Java and
# Python, the certificates and proxies of the machine, and the mark by which a stack ends it.
KEPT = re.compile(
    r"HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|LANG|LANGUAGE|LC_\w+|JAVA_HOME|LD_LIBRARY_PATH|PYTHON\w*"
    r"|SSL_CERT_(FILE|DIR)|(?i:(https?|no|all)_proxy)|TIDEGAUGE_STACK_ID"
)


def main() -> int:
    """Run the program until told to stop; 1 with a line that says why when it ends before."""
    pipeline, plan = read_arguments("external")
    settings = load_settings(ServiceSettings)
    stop = stop_on_signals()
    events = open_events(settings, f"runner-{pipeline.name}")
    command = pipeline.external.command if pipeline.external else ()
    try:
        process = start(command, environment(pipeline, plan, settings)) if command else None
    except OSError as error:
        print(f"{pipeline.name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    # Only now, so that it knows the program; a parent that is gone already is noticed as well.
    end_with_parent(lambda: kill(process))
    events.lifecycle(protocol.READY, plan.request.run_id, pipeline=pipeline.name)
    code = watch(process, stop)
    if code is not None:
        # The program's own last words stay the last line of the log: they say why.
        return code or EXIT_FAILED
    return EXIT_STOPPED


def environment(pipeline: Pipeline, plan: RunPlan, settings: ServiceSettings) -> dict[str, str]:
    """What the program is told, and nothing of ours besides; `python` is this one."""
    starts = {topic: plan.start_offsets[topic] for topic in catalogue.INPUTS}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    if settings.kafka_bootstrap:
        kept["TIDEGAUGE_KAFKA_PROPERTIES"] = json.dumps(settings.kafka_properties)
    return kept | {
        "PATH": path,
        "TIDEGAUGE_KAFKA_BOOTSTRAP": settings.open_bootstrap,
        "TIDEGAUGE_RUN_ID": plan.request.run_id,
        "TIDEGAUGE_STAGES": ",".join(stages_to_run(pipeline, plan)),
        "TIDEGAUGE_OUTPUT": catalogue.output_topic(pipeline.name, ""),
        "TIDEGAUGE_START_OFFSETS": json.dumps(starts),
    }


def start(command: Sequence[str], variables: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the program in this process's group, its output in the same log. Raises OSError."""
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
