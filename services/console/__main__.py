"""The `tidegauge` command: asks through Kafka, answers from ClickHouse.

./tidegauge run            # start what is not running, do one run, print a report
./tidegauge --help
"""

import json
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from rich.console import Console

from deploy.local.stack import StackError
from schemas.protocol import parse_stages
from services.console import asking, listing, rebuilding
from services.console.answering import answering_store
from services.console.arguments import build_parser
from services.console.benchmarks import run_benchmarks
from services.console.changes import look_for_changes, show_changes
from services.console.checks import run_tests
from services.console.choosing import chosen_pipelines, with_options
from services.console.completion import script
from services.console.doctor import examine, show
from services.console.elsewhere import open_stack
from services.console.evaluating import evaluate_again
from services.console.page.document import page
from services.console.page.markdown import markdown
from services.console.page.timelines import read_timelines
from services.console.perform import RunError, perform
from services.console.report import build_report, latest_run, request_of
from services.console.show import show_report, verdict_sentence
from services.console.suites import ask_for_suite, show_suites
from services.runtime.clickhouse import QueryError, store_url
from services.runtime.definitions import DefinitionError, load_pipeline, load_suite, load_workload
from services.runtime.kafka import KafkaUnavailableError
from services.runtime.requests import new_request
from services.runtime.settings import EXIT_USAGE, ServiceSettings, load_settings
from services.runtime.sustainable import at_sustainable_share

EXIT_FAILED = 1
MOST_REPEATS = 100
EXIT_INTERRUPTED = 128 + signal.SIGINT
WATCH_S = 0.5


def main(arguments: list[str]) -> int:
    """Carry out one command; returns the exit code."""
    if arguments[:1] == ["test"]:
        return run_tests(arguments[1:])
    options = build_parser().parse_args(arguments)
    if options.data is not None:
        os.environ["TIDEGAUGE_DATA"] = str(options.data)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        settings = load_settings(ServiceSettings)
        return VERBS[options.verb](options, settings, Console(highlight=False))
    except StackError as error:
        for line in error.log_tail:
            print(f"  {line}", file=sys.stderr)
        print(f"tidegauge: {error}", file=sys.stderr)
        return error.exit_code
    except (DefinitionError, QueryError, RunError, KafkaUnavailableError) as error:
        print(f"tidegauge: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("tidegauge: interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED


def run(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """One run from nothing to a report; 0 only if it is valid and the ledger clean."""
    workload = with_options(
        load_workload(options.workload),
        options.rate,
        options.duration,
        options.warm_up,
        input_path=options.input,
        wire_format=options.format,
        kill=options.kill,
    )
    pipelines = [load_pipeline(name) for name in chosen_pipelines(options.pipeline, workload)]
    try:
        stages = parse_stages(options.stages) if options.stages else None
    except ValueError as error:
        raise DefinitionError(f"--stages: {error}.") from error
    if not 1 <= options.repeat <= MOST_REPEATS:
        raise DefinitionError(f"--repeat must be from 1 to {MOST_REPEATS}.")

    say = _teller(console)
    stack = open_stack(settings)
    reports: list[dict[str, Any]] = []
    interrupted = False
    try:
        stack.up(say)
        say(f"watch it at {_dashboards(settings)}d/tidegauge-live")
        while len(reports) < options.repeat and not interrupted:
            request = new_request(workload, pipelines, stages or workload.stages)
            request = at_sustainable_share(request, store_url(settings))
            interrupted = perform(request, settings, console, stack.check).interrupted
            reports.append(build_report(store_url(settings), request.run_id))
            if options.repeat > 1:
                say(f"run {len(reports)} of {options.repeat}: {verdict_sentence(reports[-1])}")
    finally:
        stack.close(say)
    report = _summary(reports, console) if options.repeat > 1 else reports[0]
    if options.repeat == 1:
        show_report(console, report)
    if options.report:
        options.report.write_text(json.dumps(report, indent=2) + "\n")
    if interrupted:
        return EXIT_INTERRUPTED
    return 0 if all(one["valid"] and one["conclusion"]["clean"] for one in reports) else EXIT_FAILED


def up(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Start the stack, with a suite if one is named; stay until Ctrl-C, or return at once with
    --detach."""
    suite = load_suite(options.suite) if options.suite else None
    stack, say = open_stack(settings), _teller(console)
    try:
        (stack.up_detached if options.detach else stack.up)(say)
        if suite is not None:
            ask_for_suite(settings, suite)
            console.print(f"It runs the suite {suite.name}; where it is: tidegauge status")
        if options.detach or stack.attached:
            _show_addresses(console, settings, "Stop it: tidegauge down")
            return 0
        _show_addresses(console, settings, "Ctrl-C stops it.")
        while True:
            stack.check()
            time.sleep(WATCH_S)
    finally:
        if not options.detach:
            stack.close(say)


def down(_options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Stop the stack and what was left of one."""
    found = open_stack(settings).down(_teller(console))
    console.print("The stack is down." if found else "There was no stack to stop.")
    return 0


def status(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """What is running."""
    listing.show_status(console, settings, open_stack(settings).status(), as_json=options.json)
    return 0


def doctor(_options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Check the machine and the stack."""
    return show(console, examine(settings, open_stack(settings).status().running))


def sql(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Answer one query, or show questions to begin with."""
    if options.examples == 0:
        asking.show_examples(console)
        return 0
    text = asking.example(options.examples).sql if options.examples else options.query
    if not text:
        raise DefinitionError("Give a query, or see: tidegauge sql --examples")
    output_format = asking.format_of(options.format, options.output)
    with _store(settings) as url:
        asking.answer(url, text, output_format, options.output)
    return 0


def evaluate(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Evaluate a past run again; 0 only if every count is the live one."""
    stack, say = open_stack(settings), _teller(console)
    try:
        stack.up(say)
        return evaluate_again(settings, options.run_id)
    finally:
        stack.close(say)


def rebuild(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Drop the projection and replay the bus; 0 only if every table is as it was."""
    stack, say = open_stack(settings), _teller(console)
    try:
        stack.up(say)
        say("rebuilding from the bus")
        status = rebuilding.rebuild(store_url(settings), options.force, stack.check)
    finally:
        stack.close(say)
    rebuilding.show_rebuild(console, status)
    return 0 if status["equal"] else EXIT_FAILED


def report(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Show the report of a run."""
    with _store(settings) as url:
        run_id = options.run_id or latest_run(url)
        found = build_report(url, run_id)
        if options.html:
            text = page(found, request_of(url, run_id), read_timelines(url, run_id))
            options.html.write_text(text)
    if options.markdown:
        print(markdown(found), end="")
    elif options.json:
        print(json.dumps(found, indent=2))
    elif options.html:
        console.print(f"Written to {options.html}", soft_wrap=True)
    else:
        show_report(console, found)
    return 0


def compare(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Say whether two runs, several runs each, or the pipelines of one run differ."""
    from services.console import comparing  # numpy takes longer to import than all the rest

    before = options.before.split(",")
    after = options.after.split(",") if options.after else before
    with _store(settings) as url:
        read = {run_id: comparing.read_latencies(url, run_id) for run_id in {*before, *after}}
    sides = [[read[run_id] for run_id in side] for side in (before, after)]
    alone = options.after is None
    pairs = comparing.pipelines_of(sides[0][0]) if alone else comparing.pairs_of(*sides)
    for old, new in pairs:
        console.print(f"[bold]{new.name}[/bold] against {old.name}")
        found = comparing.differences(old, new, same_run=alone)
        for difference in found:
            console.print(f"  {comparing.sentence(difference)}", soft_wrap=True)
        console.print(comparing.conclusion(old, new, found), soft_wrap=True)
    return 0


def changes(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """Where the history of a figure changed; what is new becomes an event while the stack runs."""
    running = open_stack(settings).status().running
    with _store(settings):
        found = look_for_changes(settings, publish=running)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show_changes(console, found)
    return 0


def runs(_options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """List the runs."""
    with _store(settings) as url:
        listing.show_runs(console, url)
    return 0


def workloads(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the workloads, or explain one."""
    listing.show_workloads(console, options.name)
    return 0


def pipelines(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the pipelines, or explain one."""
    listing.show_pipelines(console, options.name)
    return 0


def suites(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """List the suites, or explain one."""
    show_suites(console, options.name)
    return 0


def grafana(options: Namespace, settings: ServiceSettings, console: Console) -> int:
    """The dashboards into an existing Grafana."""
    # Only here: its client takes a second to import, which every other verb would wait for.
    from services.console.grafana import grafana as put_into_grafana

    return put_into_grafana(options, store_url(settings), console)


def bench(options: Namespace, _settings: ServiceSettings, console: Console) -> int:
    """Run benchmarks; figures are for reading, nothing passes or fails by them."""
    run_benchmarks(options.name, options.json, console)
    return 0


def completion(options: Namespace, _settings: ServiceSettings, _console: Console) -> int:
    """Print a completion script."""
    print(script(options.shell, build_parser(), listing.completions()), end="")
    return 0


VERBS = {
    "run": run,
    "up": up,
    "down": down,
    "status": status,
    "doctor": doctor,
    "bench": bench,
    "completion": completion,
    "sql": sql,
    "evaluate": evaluate,
    "rebuild": rebuild,
    "report": report,
    "changes": changes,
    "compare": compare,
    "runs": runs,
    "workloads": workloads,
    "pipelines": pipelines,
    "suites": suites,
    "grafana": grafana,
}


def _summary(reports: list[dict[str, Any]], console: Console) -> dict[str, Any]:
    from services.console import repetition  # numpy takes longer to import than all the rest

    report = repetition.summarise(reports)
    show_report(console, report)
    repetition.show(console, report)
    return report


def _store(settings: ServiceSettings) -> AbstractContextManager[str]:
    return answering_store(settings, lambda: open_stack(settings).status().running)


def _dashboards(settings: ServiceSettings) -> str:
    return f"{store_url(settings)}/dashboards/"


def _show_addresses(console: Console, settings: ServiceSettings, how_to_stop: str) -> None:
    console.print(f"The stack is up; SQL at {store_url(settings)}. {how_to_stop}", soft_wrap=True)
    console.print(f"Dashboards: {_dashboards(settings)}", soft_wrap=True)


def _teller(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(f"[dim]{text}[/dim]", soft_wrap=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
