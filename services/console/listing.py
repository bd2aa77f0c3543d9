"""Lists: status, runs, changes, workloads, pipelines; and a workload in words: its load, what it
measures, how that is judged, and its source.

Also the verb `sql`: one query, printed or written to a file, and example queries.
"""

import dataclasses
import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from analysis.changes.words import change_sentence
from schemas.domain import DomainSpec
from schemas.load import Combined, Shape
from schemas.protocol import Phases, Workload
from schemas.search import Search
from schemas.validation_errors import DefinitionError
from schemas.workload import LEAST_WARM_UP_S, Validity
from services.console.files import write_file
from services.console.lists import position_sentence, skipped_sentences
from services.console.report.words import SHOWN
from services.console.terminal import harmless, headed, show_entries
from services.definitions.domains import domain_names, load_domain
from services.definitions.pipelines import EXTERNAL, PIPELINES_DIR, defined_in, load_pipeline, names
from services.definitions.workloads import (
    WORKLOADS_DIR,
    chosen_workload,
    load_workload,
)
from services.readmodel.runs import CurrentRun, RunRow, current_run, suite_position
from services.runtime.clickhouse import QueryError, StoreUrl, query_bytes, store_url
from services.runtime.settings import ROOT, ServiceSettings

EXAMPLES_DIR = ROOT / "deploy" / "clickhouse" / "examples"
FORMATS = {
    "table": "PrettyCompact",
    "csv": "CSVWithNames",
    "json": "JSONEachRow",
    "jsonl": "JSONEachRow",
    "md": "Markdown",
    "parquet": "Parquet",
    "tsv": "TSVWithNames",
}
BINARY = ("Arrow", "ArrowStream", "Avro", "Native", "ORC", "Parquet", "RowBinary")
MAX_WIDTH = 400  # of a list that is piped
SHOWN_CAUSES = 2
MIN_RESULT = 30  # on a narrow terminal, with the gaps between columns


@dataclass(frozen=True)
class Example:
    """A common question and the query that answers it."""

    number: int
    question: str
    sql: str


def examples() -> tuple[Example, ...]:
    """All examples in order."""
    result = []
    for path in sorted(EXAMPLES_DIR.glob("*.sql")):
        first, _, sql = path.read_text().partition("\n")
        result.append(Example(int(path.name[:2]), first.removeprefix("--").strip(), sql.strip()))
    return tuple(result)


def example(number: int) -> Example:
    """One example by its number. Raises DefinitionError."""
    for each in examples():
        if each.number == number:
            return each
    raise DefinitionError(f"There is no example {number}; see: ./tidegauge sql --examples")


def plain_examples() -> list[dict[str, Any]]:
    """All examples as plain values."""
    return [asdict(each) for each in examples()]


def show_examples(console: Console) -> None:
    """Print all examples."""
    for each in examples():
        console.print(headed(str(each.number), each.question), soft_wrap=True)
        console.print(Syntax(each.sql, "sql", background_color="default", word_wrap=True))
        console.print()
    console.print("Run one with: ./tidegauge sql --examples NUMBER")


def format_of(name: str | None, output: Path | None) -> str:
    """The requested ClickHouse format, by name or by the suffix of the file.

    Names in FORMATS are case-insensitive; other names are passed to ClickHouse. Raises
    DefinitionError if a binary format would go to a terminal.
    """
    suffix = output.suffix.removeprefix(".") if output else ""
    asked = name or (suffix if suffix.lower() in FORMATS else "table")
    result = FORMATS.get(asked.lower(), asked)
    if output is None and result in BINARY and sys.stdout.isatty():
        raise DefinitionError(f"{result} is not for a terminal; add --output FILE.")
    if not re.fullmatch(r"[A-Za-z0-9]+", result):
        raise DefinitionError(f"There is no format {result!r}.")
    return result


def answer(url: StoreUrl | str, sql: str, output_format: str, output: Path | None) -> None:
    """Write the result to standard output, or to a file once it is complete. Says so if a table has
    no rows. Raises QueryError."""
    data = query_bytes(url, sql, output_format)
    if not data:
        print("tidegauge: the answer has no rows.", file=sys.stderr)
    if output is None:
        if sys.stdout.isatty():
            data = harmless(data.decode(errors="replace")).encode()
        sys.stdout.buffer.write(data)
        return
    write_file("--output", output, data)


ORPHANED = (
    "The command that started these processes is gone, and nothing restarts one that fails."
    " End them with: ./tidegauge down"
)


def show_status(console: Console, settings: ServiceSettings, status: Any, as_json: bool) -> None:
    """Print what runs and where; `status` is the local stack's status."""
    fields = dataclasses.asdict(status)
    run, suite = _state(store_url(settings)) if status.running else (None, None)
    fields |= {"run": run and dataclasses.asdict(run), "suite": suite}
    if as_json:
        print(json.dumps(fields, indent=2))
        return
    if not status.running:
        console.print("The stack is not running.")
    if fields["services"] and (status.running or status.orphaned):
        console.print(_services(fields["services"]))
    if status.orphaned:
        console.print(ORPHANED, soft_wrap=True)
    if not status.running:
        return
    if not fields["services"]:
        console.print("The services run elsewhere (TIDEGAUGE_STORE_URL).")
    console.print(f"Kafka {fields['kafka']} · SQL {fields['clickhouse_http']}", soft_wrap=True)
    console.print(f"Dashboards {fields['dashboards']}", soft_wrap=True)
    console.print(_run_line(run) if run else "No run is in progress.", soft_wrap=True)
    if suite:
        for line in (position_sentence(suite), *skipped_sentences(suite)):
            console.print(line, soft_wrap=True)


def _services(services: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for column in ("service", "pid", "state", "restarts"):
        table.add_column(column)
    for service in services:
        again = str(service["restarts"] or "")
        table.add_row(service["name"], str(service["pid"]), service["state"], again)
    return table


def show_runs(console: Console, rows: list[RunRow], limit: int) -> None:
    """A table of at most this many runs."""
    if not rows:
        console.print("There is no run yet; start one with: ./tidegauge run")
        return
    table = Table(box=SIMPLE_HEAD)
    if not console.is_terminal:
        console.width = MAX_WIDTH
    longest = max(len(row["run_id"]) for row in rows)
    table.add_column("run (date-time, UTC)", no_wrap=True)
    # Narrow terminals truncate names, never the id, which other verbs need.
    left = console.width - longest - MIN_RESULT
    for column in ("workload", "pipelines"):
        table.add_column(column, no_wrap=True, max_width=max(8, left // 2))
    table.add_column("result")
    for row in rows[:limit]:
        table.add_row(row["run_id"], row["workload"], "\n".join(row["pipelines"]), _result(row))
    console.print(table)
    if len(rows) > limit:
        console.print(f"There are more than {limit} runs; --limit shows more.")


def _result(run: RunRow) -> str:
    """The result of a run in a few words."""
    if not run["concluded"] and run["phase"]:
        return f"in {run['phase']}"
    if not run["concluded"]:
        why = [each.partition(": ")[2] for each in run["failures"][:1]]
        return f"did not take place: {why[0]}" if why else "not concluded"
    if not run["valid"]:
        return "INVALID: " + " ".join(run["invalid_reasons"])
    words = "valid, ledger clean" if run["clean"] else "valid, ledger not clean"
    return f"{words}, NOT steady" if run["steady"] == 0 else words


def show_workloads(console: Console, name: str | None, domain: str | None = None) -> None:
    """List all workloads with their summaries, or describe one; domain: on another domain than its
    own. Raises DefinitionError."""
    if name:
        result, workload = chosen_workload(name, domain)
        _explain_workload(console, workload, result.spec)
        return
    entries = [(each, load_workload(each).summary) for each in names(WORKLOADS_DIR)]
    for of_domain in map(load_domain, domain_names()):
        own = of_domain.folder / "workloads"
        entries += [
            (f"{each} --domain {of_domain.spec.name}", load_workload(each, own).summary)
            for each in names(own)
        ]
    show_entries(console, entries)


def show_pipelines(console: Console, name: str | None) -> None:
    """List all pipelines with their summaries, or describe one. Raises DefinitionError."""
    if not name:
        show_entries(
            console, ((each, load_pipeline(each).summary) for each in names(PIPELINES_DIR))
        )
        return
    pipeline = load_pipeline(name)
    console.print(headed(pipeline.name, pipeline.summary), soft_wrap=True)
    for field, value in pipeline.model_dump(exclude={"name", "summary"}).items():
        # A JSON text of these types is also TOML, except that of an empty table.
        if value is not None and not isinstance(value, dict):
            console.print(f"  {field} = {json.dumps(value)}", soft_wrap=True)
    if not name.startswith(EXTERNAL):
        console.print(f"Defined in {defined_in(name, PIPELINES_DIR)}", soft_wrap=True)


def _explain_workload(console: Console, workload: Workload, domain: DomainSpec) -> None:
    console.print(headed(workload.name, workload.summary), soft_wrap=True)
    for line in explained(workload, domain):
        console.print(f"  {line}", soft_wrap=True)


def _state(url: str) -> tuple[CurrentRun | None, dict[str, Any] | None]:
    """The current run and the position of the suite; None without one, or if the store does not
    answer."""
    try:
        return current_run(url), suite_position(url)
    except QueryError:
        return None, None


def _run_line(run: CurrentRun) -> str:
    """The current state of a run, with unsteady figures during warm-up."""
    still = "; ".join(run.still[:SHOWN]) if run.phase == "warm_up" else ""
    return f"Run {run.run_id}: {run.phase}" + (f" ({still})" if still else "")


def explained(workload: Workload, domain: DomainSpec) -> list[str]:
    """Sentences about a workload, in the order of a run."""
    load, phases, judged = workload.load, workload.phases, workload.judgement
    lines = [
        f"Load: {load.shape}, {_given(load)}; total over {' and '.join(domain.topics)}.",
        f"Content: {_content(workload)}.",
        f"Phases: {_warm_up(phases)}, {phases.measure_s} s measured, "
        f"{phases.cool_down_s} s cool-down, then drained.",
        f"Evaluated: {', '.join(workload.stages or domain.stage_names)}. Late after "
        f"{judged.deadline_ms} ms, missing after {judged.give_up_ms} ms.",
        _valid(workload.validity),
    ]
    lines.append(f"Single pairs: {'published' if workload.publishes_pairs else 'not published'}.")
    if workload.pipelines:
        lines.insert(0, f"Default pipelines: {', '.join(workload.pipelines)}.")
    if workload.pipelines_start_s:
        lines.append(f"The pipelines start {workload.pipelines_start_s} s after the load.")
    if workload.search:
        lines.append(_search(workload.search, load.base_rate_per_second))
    if workload.scaling:
        lines.append(_scaling(workload))
    if workload.sustainable_share:
        rate = "sustainable" if workload.sustainable_share <= 1 else "lowest unsustainable"
        lines.append(
            f"Rate: {workload.sustainable_share:.0%} of the {rate} rate in the last search for the "
            "pipeline and its stages."
        )
    lines += [
        f"Fault: {kill.said}, {kill.at_s} s into the measured phase." for kill in workload.kills
    ]
    if workload.measures:
        lines.append(f"Measured: {workload.measures}")
    if workload.source:
        lines.append(f"Source: {workload.source}.")
    return lines


def _content(workload: Workload) -> str:
    """Format, source and other settings of the workload's content."""
    given = workload.content.model_dump(exclude_unset=True, exclude={"format"})
    return ", ".join(
        [workload.content.format, *(f"{name} = {each}" for name, each in given.items())]
    )


def _valid(rules: Validity) -> str:
    texts = [
        f"the p99 send delay is at most {rules.max_send_delay_p99_ms:g} ms",
        f"at most {rules.max_failed_records} records failed",
    ]
    if rules.max_evaluator_lag_ms is not None:
        texts.append(f"the evaluation is never more than {rules.max_evaluator_lag_ms} ms behind")
    if rules.max_steal_share is not None:
        texts.append(f"CPU steal is at most {rules.max_steal_share:.0%}")
    if rules.max_others_share is not None:
        texts.append(f"other processes use at most {rules.max_others_share:.0%} of the cores")
    if rules.must_be_steady:
        texts.append("every stage is steady at the start of the measured phase")
    if rules.must_be_undisturbed:
        texts.append("all late seconds are the pipeline's")
    return f"Valid if {', '.join(texts[:-1])} and {texts[-1]}."


def _warm_up(phases: Phases) -> str:
    if not phases.until_steady:
        return f"{phases.warm_up_s} s warm-up"
    return f"warm-up until all stages are steady ({LEAST_WARM_UP_S} to {phases.warm_up_s} s)"


def _search(search: Search, guess: float) -> str:
    at_most = "at most " if search.until_steady else ""
    return (
        f"Search: start at {guess:g} records/s, multiply or divide by {search.factor:g}, then "
        f"bisect to {search.precision:.0%}, in steps of {search.step_s} s after a warm-up of "
        f"{at_most}{search.step_warm_up_s} s. Undecided steps are repeated and the rate found is "
        f"confirmed over {search.confirm_s} s. A step is sustained by the policy "
        f"{search.judged_by} if {_policy(search)} The search takes at most {search.budget_s:.0f} "
        f"s, then a run at {search.verify_share:.0%} of the rate found."
    )


def _scaling(workload: Workload) -> str:
    assert workload.scaling is not None
    workers = ", ".join(map(str, workload.scaling.workers))
    own, times = workload.partitions, workload.scaling.partitions_per_worker
    partitions = str(own) if own else f"{times} per worker"
    return (
        f"Scaling: this search with each number of workers: {workers}. Partitions of each topic: "
        f"{partitions}."
    )


def _policy(search: Search) -> str:
    steady, queue = search.steady_latency, search.queue
    if search.policy == "steady-latency":
        return (
            f"the median latency rises by at most {1000 * steady.max_rise:g} ms a second and stays "
            f"below {steady.max_median_ms} ms, all outputs are published {steady.max_drain_s:g} s "
            f"after the end, and the pipeline uses less than {steady.max_cpu_share:.0%} of the "
            "cores that other processes leave."
        )
    if search.policy == "own":
        return "its function judge(step) answers None."
    tolerated = {
        "queue-by-time": f"for up to {queue.tolerated_s:g} s",
        "queue-by-count": f"for up to {queue.tolerated:.0%} of the input",
        "queue-combined": "if it is short again half way between",
    }[search.policy]
    return (
        f"the queue stays below {queue.unacceptable:.0%} of the step's input, and above "
        f"{queue.acceptable:.0%} only {tolerated}."
    )


def _given(load: Shape) -> str:
    """The values of a load that differ from its shape's defaults, as in its file; parts by their
    shapes."""
    given = load.model_dump(exclude_defaults=True, exclude={"shape", "parts"})
    names = sorted(given, key=lambda name: name == "for_s")
    texts = [f"{name} = {given[name]}" for name in names]
    if isinstance(load, Combined):
        texts += [f"{part.shape} ({_given(part)})" for part in load.parts]
    return ", ".join(texts) or "as recorded"


def show_changes(console: Console, changes: list[dict[str, Any]], explains: bool = False) -> None:
    """One paragraph per change. explains: also print both levels, the confidence, and all that
    changed."""
    if not changes:
        console.print("No change point in the history of any workload.")
    for change in changes:
        console.print(change_sentence(change), soft_wrap=True)
        causes = change["likely_causes"]
        for line in (*levels(change), *causes) if explains else causes[:SHOWN_CAUSES]:
            console.print(f"    {line}", soft_wrap=True)
        if len(causes) > SHOWN_CAUSES and not explains:
            more = len(causes) - SHOWN_CAUSES
            console.print(f"    and {more} more: ./tidegauge changes --explain", soft_wrap=True)


def levels(change: dict[str, Any]) -> list[str]:
    """`before: median 5.1, 4.9 to 5.6 in 12 runs`, the same for after, and the confidence."""
    result = [
        f"{side}: median {at['median']:.4g}, {at['low']:.4g} to {at['high']:.4g}"
        f" in {at['runs']} runs"
        for side, at in (("before", change["before"]), ("since", change["after"]))
    ]
    adjusted = "Latencies are adjusted for the pace of the machine and the time of day."
    odds = f"Of shuffled histories {change['p_value']:.2%} show as great a change."
    return [*result, adjusted, odds]
