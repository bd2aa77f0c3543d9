"""Suites on the command line: start one, list them, show the position of the running one."""

from typing import Any

from rich.console import Console

from schemas.commands import RunSuite
from schemas.suite import Pace, Suite
from services.console.terminal import headed
from services.definitions.pipelines import names
from services.definitions.trusted import keep_suite
from services.definitions.workloads import SUITES_DIR, load_suite
from services.runtime.events import open_events
from services.runtime.kafka import CONSOLE
from services.runtime.process import now_ms
from services.runtime.settings import ServiceSettings


def ask_for_suite(settings: ServiceSettings, suite: Suite) -> None:
    """Make the running conductor execute a suite, replacing its current one. Raises OSError."""
    if not settings.store_url:
        keep_suite(settings.data, suite)
    open_events(settings, CONSOLE).send(RunSuite(suite=suite))


def show_suites(console: Console, name: str | None) -> None:
    """List all suites with their summaries, or the steps of one. Raises DefinitionError."""
    if not name:
        for each in names(SUITES_DIR):
            console.print(headed(each, load_suite(each).summary), soft_wrap=True)
        return
    suite = load_suite(name)
    pace = suite.pace
    console.print(headed(suite.name, suite.summary), soft_wrap=True)
    for number, step in enumerate(suite.steps, 1):
        often = f", at most every {step.every_s} s" if step.every_s else ""
        often += f" [{step.kind}]" if suite.rotation else ""
        length = f"{step.workload.phases.measure_s} s measured"
        console.print(f"  {number}. {step.label}: {length}{often}", soft_wrap=True)
    shares = [f"{kind} {share:g}" for kind, share in suite.rotation.items()]
    kept = f"Pipelines that the next run needs are kept running, at most {pace.keep_warm_s} s."
    for line in (
        *([f"Shares of run time: {', '.join(shares)}."] if shares else []),
        *([f"At most {pace.hours_per_day:g} h a day."] if pace.hours_per_day < 24 else []),
        f"At most {_cores(pace)} on average, and at least {pace.pause_s} s between runs.",
        *([kept] if pace.keep_warm_s > pace.pause_s else []),
        f"Waits while other processes use more than {pace.busy_share:.0%} of it, at most "
        f"{pace.patience_s} s.",
    ):
        console.print(f"  {line}", soft_wrap=True)


def _cores(pace: Pace) -> str:
    share = f"{pace.max_cpu_share:.0%} of the processor"
    return share if pace.max_cores is None else f"{share} and {pace.max_cores:g} cores"


def position_sentence(position: dict[str, Any], time_ms: int | None = None) -> str:
    """`Suite default, round 2, step 3 of 4 (…): running …`."""
    doing = position["state"]
    if doing == "running":
        doing = f"running {position['run_id']}"
    elif doing == "waiting":
        doing = f"waiting, {position['reason']}"
    elif doing == "skipping":
        doing = f"skipped, {position['reason'].rstrip('.')}"
    elif position["next_at_ms"] is not None:
        left_s = (position["next_at_ms"] - (now_ms() if time_ms is None else time_ms)) / 1000
        doing = f"pausing, next in {max(0, left_s):.0f} s"
    return (
        f"Suite {position['name']}, round {position['round']}, step {position['step']} of "
        f"{position['steps']} ({position['label']}): {doing}. {position['runs']} runs so far."
    )


def skipped_sentences(position: dict[str, Any]) -> list[str]:
    """`Skipped: at-90-percent at …: No sustainable rate is known …`, one for each such step."""
    return [f"Skipped: {one}" for one in position.get("skipped", ())]
