"""The verb `compare`: the comparable figures of two sides, other differences, and significance."""

import json
from collections.abc import Sequence

from rich.console import Console

from analysis import comparison
from analysis.comparability import Facts, differed, left_out, needed_of
from analysis.comparison import Side
from services.console.interleaved import interleaved_sentences
from services.console.report import build_report, request_of
from services.runtime.clickhouse import QueryError, query

READY = (
    "SELECT pipeline, detail FROM tidegauge.results_lifecycle"
    " WHERE run_id = {run_id:String} AND event = 'ready' AND pipeline != ''"
)


def show_comparison(
    console: Console, url: str, before: Sequence[str], after: Sequence[str] | None
) -> None:
    """Print how two sides of runs differ, or the pipelines of one run if there is no second side.
    Raises QueryError if nothing is comparable."""
    known = {run_id: read_facts(url, run_id) for run_id in dict.fromkeys([*before, *(after or ())])}
    refused = left_out(list(known.values()))
    for reason in refused.values():
        console.print(reason, soft_wrap=True, markup=False)
    sides = [[run_id for run_id in side if run_id not in refused] for side in (before, after or ())]
    if after is None:
        run_id = sides[0][0]
        if in_turns := interleaved_sentences(known[run_id].report):
            console.print(*in_turns, sep="\n", soft_wrap=True, markup=False)
            return
        latencies = comparison.read_latencies(url, run_id)
        runs = [known[run_id]]
        for old, new in comparison.pipelines_of(latencies):
            _show(console, old, new, (runs, runs), same_run=True)
        return
    if not sides[1]:
        raise QueryError("Nothing to compare: no run is left on the second side.")
    read = [[comparison.read_latencies(url, run_id) for run_id in side] for side in sides]
    facts = ([known[run_id] for run_id in sides[0]], [known[run_id] for run_id in sides[1]])
    for old, new in comparison.pairs_of(*read):
        _show(console, old, new, facts, same_run=False)


def read_facts(url: str, run_id: str) -> Facts:
    """The known facts of a run. Raises QueryError."""
    versions = {}
    for row in query(url, READY, run_id=run_id):
        said = json.loads(row["detail"])
        told = [str(text) for name, text in said.items() if name.endswith("version")]
        versions[row["pipeline"]] = told[0] if told else ""
    return Facts(build_report(url, run_id), request_of(url, run_id), versions)


def _show(
    console: Console,
    old: Side,
    new: Side,
    facts: tuple[Sequence[Facts], Sequence[Facts]],
    *,
    same_run: bool,
) -> None:
    console.print(f"[bold]{new.name}[/bold] against {old.name}")
    having = [
        [one for one in of if one.has(side.name)]
        for side, of in zip((old, new), facts, strict=True)
    ]
    runs = {one.run_id: one for side in having for one in side}.values()
    doubts = [doubt for one in runs for doubt in one.doubts()]
    before, after = (
        [one.circumstances(side.name) for one in of]
        for side, of in zip((old, new), having, strict=True)
    )
    if other := differed(before, after):
        console.print(f"  Also different: {'; '.join(other)}.", soft_wrap=True, markup=False)
    found = comparison.differences(old, new, same_run=same_run)
    may_be_real = not doubts and (same_run or comparison.by_runs(old, new))
    for difference in found:
        said = comparison.sentence(difference, may_be_real=may_be_real)
        console.print(f"  {said}", soft_wrap=True, markup=False)
    text = comparison.conclusion(old, new, found, same_run=same_run, doubts=doubts)
    console.print(
        f"{text} {needed_of(one.report for one in runs)}".rstrip(), soft_wrap=True, markup=False
    )
