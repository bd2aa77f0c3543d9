"""Lists: status, runs, workloads, pipelines."""

import dataclasses
import json
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from schemas.domain import DomainSpec
from schemas.protocol import Workload
from services.console.asking import FORMATS
from services.console.benchmarks import benchmark_names
from services.console.explaining import explained
from services.console.report.words import SHOWN
from services.console.suites import position_sentence, skipped_sentences
from services.console.terminal import headed
from services.definitions.domains import domain_names, load_domain
from services.definitions.engines import load_engines
from services.definitions.files import defined_in, names
from services.definitions.pipelines import EXTERNAL, PIPELINES_DIR, load_pipeline
from services.definitions.workloads import (
    STUDIES_DIR,
    SUITES_DIR,
    WORKLOADS_DIR,
    chosen_workload,
    load_workload,
)
from services.readmodel.runs import CurrentRun, RunRow, current_run, suite_position
from services.runtime.clickhouse import QueryError, store_url
from services.runtime.settings import ServiceSettings

MAX_WIDTH = 400  # of a list that is piped
MIN_RESULT = 30  # on a narrow terminal, with the gaps between columns


def show_status(console: Console, settings: ServiceSettings, found: Any, as_json: bool) -> None:
    """Print what runs and where; `found` is the local stack's status."""
    fields = dataclasses.asdict(found)
    run, suite = _state(store_url(settings)) if found.running else (None, None)
    fields |= {"run": run and dataclasses.asdict(run), "suite": suite}
    if as_json:
        print(json.dumps(fields, indent=2))
        return
    if not found.running:
        console.print("The stack is not running.")
        return
    if fields["services"]:
        console.print(_services(fields["services"]))
    else:
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
        why = [one.partition(": ")[2] for one in run["failures"][:1]]
        return f"did not take place: {why[0]}" if why else "not concluded"
    if not run["valid"]:
        return "INVALID: " + " ".join(run["invalid_reasons"])
    words = "valid, ledger clean" if run["clean"] else "valid, ledger not clean"
    return f"{words}, NOT steady" if run["steady"] == 0 else words


def show_workloads(console: Console, name: str | None, domain: str | None = None) -> None:
    """List all workloads with their summaries, or describe one; domain: on another domain than its
    own. Raises DefinitionError."""
    if name:
        found, workload = chosen_workload(name, domain)
        _explain_workload(console, workload, found.spec)
        return
    for each in names(WORKLOADS_DIR):
        console.print(headed(each, load_workload(each).summary), soft_wrap=True)
    for of_domain in map(load_domain, domain_names()):
        own = of_domain.folder / "workloads"
        for each in names(own):
            head = f"{each} --domain {of_domain.spec.name}"
            console.print(headed(head, load_workload(each, own).summary), soft_wrap=True)


def show_pipelines(console: Console, name: str | None) -> None:
    """List all pipelines with their summaries, or describe one. Raises DefinitionError."""
    if not name:
        for each in names(PIPELINES_DIR):
            console.print(headed(each, load_pipeline(each).summary), soft_wrap=True)
        return
    pipeline = load_pipeline(name)
    console.print(headed(pipeline.name, pipeline.summary), soft_wrap=True)
    for field, value in pipeline.model_dump(exclude={"name", "summary"}).items():
        # A JSON text of these types is also TOML, except that of an empty table.
        if value is not None and not isinstance(value, dict):
            console.print(f"  {field} = {json.dumps(value)}", soft_wrap=True)
    if not name.startswith(EXTERNAL):
        console.print(f"Defined in {defined_in(name, PIPELINES_DIR)}", soft_wrap=True)


def completions() -> dict[str, tuple[str, ...]]:
    """Possible values of arguments, by verb and argument."""
    workloads, pipelines = names(WORKLOADS_DIR), names(PIPELINES_DIR)
    return {
        "run.workload": workloads,
        "run.pipeline": pipelines,
        "workloads.name": workloads,
        "pipelines.name": pipelines,
        "domains.name": domain_names(),
        "engines.name": tuple(load_engines()),
        "run.domain": domain_names(),
        "workloads.domain": domain_names(),
        "suites.name": names(SUITES_DIR),
        "up.suite": names(SUITES_DIR),
        "study.name": names(STUDIES_DIR),
        "bench.names": benchmark_names(),
        "sql.format": tuple(FORMATS),
    }


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
