"""How many messages the evaluator pairs and judges in a second on one core, against Faust alone.

Topics are filled beforehand with inputs and the outputs of stage 1. Then, in turn, each in a
process of its own bound to one core:
- ours: a run as the service evaluates it (read, decode, pair, judge, count, encode and publish
  events); only Faust's channel, one message per batch, is left out;
- the peer: a Faust agent that gets every event, counts it and looks at its time.
The broker has the other cores. A rate is that of the messages, inputs and outputs, from the first
read to the last verdict.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from services.runtime.settings import ROOT
from tests.benchmarks._evaluator_topics import PER_TOPIC, fill
from tests.benchmarks._measured import Measured
from tests.integration.kafka_broker import running_broker

ROUNDS = 3
PEER_MESSAGES = 60_000
TIMEOUT_S = 120


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Rates in messages/s of one core, medians of the rounds."""
    rates: dict[str, list[float]] = {"ours": [], "faust": []}
    with running_broker(scratch) as settings:
        say(f"filling topics with {4 * PER_TOPIC:,} messages …")
        plan = fill(settings, scratch)
        for number in range(ROUNDS):
            for name, found in rates.items():
                found.append(_rate(name, settings.bootstrap, plan, scratch))
                say(f"round {number + 1}: {name} {found[-1]:,.0f} messages/s")
    ours, faust = median(rates["ours"]), median(rates["faust"])
    return Measured(
        {"evaluator_messages_per_second": ours, "faust_per_event_messages_per_second": faust},
        {"evaluator_to_faust_per_event": ours / faust},
    )


def _rate(name: str, bootstrap: str, plan: Path, scratch: Path) -> float:
    variables = {
        "TIDEGAUGE_KAFKA_BOOTSTRAP": bootstrap,
        "TIDEGAUGE_DATA": str(scratch / name),
        "TIDEGAUGE_BENCH_MESSAGES": str(PEER_MESSAGES),
    }
    found = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks._evaluator_{name}", str(plan)],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=True,
    )
    # Faust shows and hides a cursor around what is said.
    said = json.loads(found.stdout[found.stdout.index(b"{") : found.stdout.rindex(b"}") + 1])
    return float(said["messages"]) / float(said["seconds"])
