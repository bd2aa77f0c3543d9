"""The blocks of an interleaved run with all latencies, for replays.

.venv/bin/python -m tests.benchmarks._blocks STORE_URL FILE.json.xz RUN_ID…
"""

import json
import lzma
import sys
from pathlib import Path
from typing import Any

from analysis import interleaving
from services.console.report.several import blocks_of, turns_of
from services.readmodel.runs import request_of
from services.readmodel.seconds import latencies_by_input


def recorded_blocks(url: str, run_id: str) -> dict[str, Any]:
    """pipelines: both names; blocks: for each pair and pipeline, the number of outputs by stage and
    latency. Raises QueryError."""
    turns = turns_of(url, run_id, request_of(url, run_id))
    assert turns is not None
    said = turns.said
    first, second = tuple(dict.fromkeys(said.order))
    pairs = interleaving.paired(blocks_of(turns), first, second)
    sides: dict[str, list[dict[str, Any]]] = {}
    for side, name in enumerate((first, second)):
        mine = [pair[side] for pair in pairs]
        blocks: list[dict[str, Any]] = [{} for _ in mine]
        for (pipeline, stage), seconds in latencies_by_input(url, run_id).items():
            if pipeline == name:
                outputs = interleaving.outputs_of(seconds, mine, said.edge_s)
                for block, counts in zip(blocks, outputs.values(), strict=True):
                    block[stage] = dict(counts)
        sides[name] = blocks
    return {
        "pipelines": [first, second],
        "blocks": [list(pair) for pair in zip(*sides.values(), strict=True)],
    }


def main() -> None:
    """Write the blocks of runs to a file."""
    url, path, *runs = sys.argv[1:]
    kept = [{"kind": "recorded", "run_id": one} | recorded_blocks(url, one) for one in runs]
    Path(path).write_bytes(lzma.compress(json.dumps(kept).encode()))


if __name__ == "__main__":
    main()
