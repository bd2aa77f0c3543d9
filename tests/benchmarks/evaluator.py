"""How many messages per second the evaluator pairs and judges on one core, compared with Faust
alone.

Topics are filled beforehand with inputs and the outputs of all five stages. Then, alternately, each
in its own process bound to one core:
- stages: a run of five stages as the service evaluates it (read, decode, pair, judge, count, encode
  and publish events); only Faust's channel, one message per batch, is omitted;
- parse: the same for stage 1 only, whose messages are mostly the largest ones;
- client: only reads and decodes the messages of the five stages, which is an upper bound;
- shard 0 to 3: four evaluators that share the run by partition, one after the other, so that each
  has a free core;
- the peer: a Faust agent that receives every event, counts it and reads its time.
The broker has the other cores. A rate is the number of messages, inputs and outputs, from the first
read to the last verdict, per second of processor time. On a busy machine a wall-clock second has
less processor time; rates per wall-clock second are reported too. The ratio of scaling compares
four evaluators on four cores with four times a single one; the slowest determines their rate.
Memory is that of the process at the end, and after it was released.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from services.runtime.settings import ROOT
from tests.benchmarks._evaluator_topics import PARTITIONS, fill, messages_of
from tests.benchmarks._measured import Measured, ratio
from tests.integration.kafka_broker import lasting, running_broker
from tests.traffic import STAGES

ROUNDS = int(os.environ.get("TIDEGAUGE_BENCH_ROUNDS", "3"))
PEER_MESSAGES = 60_000
TIMEOUT_S = 120
KINDS = {
    "stages": ("_evaluator_ours", "stages"),
    "parse": ("_evaluator_ours", "parse"),
    "client": ("_evaluator_ours", "stages", "client"),
    "faust": ("_evaluator_faust", "parse"),
}
SHARDS = [f"shard {number}" for number in range(PARTITIONS)]


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """Rates in messages/s of one core, medians of the rounds."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with running_broker(scratch, PARTITIONS, lasting()) as settings:
        say(f"filling topics with {messages_of(STAGES):,} messages …")
        plans = fill(settings, scratch)
        for number in range(ROUNDS):
            shards = dict.fromkeys(SHARDS, KINDS["stages"])
            for kind, (module, plan, *more) in (KINDS | shards).items():
                command = [f"tests.benchmarks.{module}", str(plans[plan]), *more]
                one = _run(command, settings.bootstrap, scratch / module, kind)
                found[kind].append(one)
                by_wall = one["messages"] / one["seconds"]
                said = f"{rate(one):,.0f} messages per core-second, {by_wall:,.0f} a second"
                say(f"round {number + 1}: {kind} {said}")
    each = {kind: [rate(one) for one in all_of] for kind, all_of in found.items()}
    rates = {kind: median(values) for kind, values in each.items()}
    figures = {
        "evaluator_messages_per_core_second": rates["stages"],
        "evaluator_parse_alone_messages_per_core_second": rates["parse"],
        "evaluator_client_and_decoding_messages_per_core_second": rates["client"],
        "faust_per_event_messages_per_core_second": rates["faust"],
    }
    for kind in ("stages", "faust"):
        walls = [one["messages"] / one["seconds"] for one in found[kind]]
        figures[f"{kind}_messages_per_second"] = median(walls)
    for name in ("memory_mb", "memory_given_back_mb"):
        figures[f"evaluator_{name}"] = max(one[name] for one in found["stages"])
    total = found["stages"][0]["messages"]
    together = [
        total / max(found[shard][number]["cpu_seconds"] for shard in SHARDS)
        for number in range(ROUNDS)
    ]
    return Measured(
        figures,
        ratio("evaluator_to_faust_per_event", each["stages"], each["faust"])
        | ratio("evaluator_to_client_and_decoding", each["stages"], each["client"])
        | ratio("evaluators_4_scaling", together, [len(SHARDS) * one for one in each["stages"]]),
    )


def rate(one: dict[str, Any]) -> float:
    """Messages per second of processor time."""
    return float(one["messages"]) / float(one["cpu_seconds"])


def _run(command: list[str], bootstrap: str, data: Path, kind: str) -> dict[str, Any]:
    variables = {
        "TIDEGAUGE_KAFKA_BOOTSTRAP": bootstrap,
        "TIDEGAUGE_DATA": str(data),
        "TIDEGAUGE_BENCH_MESSAGES": str(PEER_MESSAGES),
    }
    if kind in SHARDS:
        variables["TIDEGAUGE_EVALUATOR_INSTANCE_INDEX"] = str(SHARDS.index(kind))
        variables["TIDEGAUGE_EVALUATOR_INSTANCE_COUNT"] = str(len(SHARDS))
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=True,
    )
    # Faust prints cursor control codes around the output.
    text = done.stdout[done.stdout.index(b"{") : done.stdout.rindex(b"}") + 1]
    found: dict[str, Any] = json.loads(text)
    return found
