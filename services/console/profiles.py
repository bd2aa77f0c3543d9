"""`run --profile citation`: figures to be cited, or a refusal that names the violated rule.

Time-saving settings are disabled: the warm-up lasts until every stage is steady, JVMs compile as
they do by default and collect garbage with G1, the broker runs with the settings of a permanent
one. The machine must be quiet before and during the runs, and at least LEAST_RUNS runs must be
valid.
"""

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import psutil

from schemas.load import PERIODIC
from schemas.pipeline import Pipeline
from schemas.report import Report
from schemas.validation_errors import DefinitionError
from schemas.workload import Workload
from services.definitions.engines import load_engine

LEAST_RUNS = 5
WARM_UP_S, MEASURE_S = 600, 120  # maximum and minimum
OTHERS_SHARE, STEAL_SHARE = 0.05, 0.02
LOOK_S = 5.0
G1 = "-XX:+UseG1GC"
COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def runs_of(asked: int | None) -> int:
    """Number of runs. Raises DefinitionError if it is too low."""
    if asked is not None and asked < LEAST_RUNS:
        raise DefinitionError(f"--profile citation: --repeat must be at least {LEAST_RUNS}.")
    return asked or LEAST_RUNS


def cited_workload(workload: Workload) -> Workload:
    """The workload with a long warm-up and strict rules. Raises DefinitionError."""
    if not workload.load.IS_PERIODIC or workload.pipelines_start_s:
        raise DefinitionError(
            "--profile citation: the load must be the same at any time "
            f"({', '.join(PERIODIC)}), so that it can be steady."
        )
    phases = workload.phases
    longer = {"warm_up_s": WARM_UP_S, "until_steady": True, "optimised": True}
    longer["measure_s"] = max(MEASURE_S, phases.measure_s)
    rules = workload.validity
    strict = {
        "must_be_steady": True,
        "must_be_undisturbed": True,
        "max_others_share": _stricter(OTHERS_SHARE, rules.max_others_share),
        "max_steal_share": _stricter(STEAL_SHARE, rules.max_steal_share),
    }
    changes = {
        "phases": phases.model_copy(update=longer),
        "validity": rules.model_copy(update=strict),
    }
    return Workload.model_validate(workload.model_copy(update=changes).model_dump())


def _stricter(most: float, own: float | None) -> float:
    return most if own is None else min(most, own)


def cited_pipelines(pipelines: Sequence[Pipeline]) -> tuple[Pipeline, ...]:
    """The pipelines without time-saving JVM start options, where these can be set. Raises
    DefinitionError if one chooses another garbage collector."""
    return tuple(map(_cited, pipelines))


def _cited(pipeline: Pipeline) -> Pipeline:
    chosen = COLLECTOR.findall(json.dumps(pipeline.settings))
    if other := next((one for one in chosen if one != G1), ""):
        raise DefinitionError(
            f"--profile citation: JVMs collect garbage with G1, but the pipeline {pipeline.name} "
            f"has the option {other}."
        )
    settings = load_engine(pipeline.engine).spec.settings
    changes: dict[str, Any] = {}
    if "quick_compiler" in settings:
        changes["quick_compiler"] = False
    if "jvm_options" in settings:
        said = pipeline.settings.get("jvm_options", ())
        given = said if isinstance(said, tuple) else ()
        changes["jvm_options"] = given if G1 in given else (*given, G1)
    return pipeline.model_copy(update=changes)


def check_quiet(look_s: float = LOOK_S) -> None:
    """Raises DefinitionError if the machine is not quiet now, before anything is started."""
    used, stolen = _shares(look_s)
    if used > OTHERS_SHARE or stolen > STEAL_SHARE:
        raise DefinitionError(
            f"--profile citation: the machine is not quiet: processes used {used:.0%} of it and "
            f"its host took {stolen:.0%} in {look_s:g} s, allowed {OTHERS_SHARE:.0%} and "
            f"{STEAL_SHARE:.0%}."
        )


def _shares(look_s: float) -> tuple[float, float]:
    before, began_s = psutil.cpu_times(), time.monotonic()
    psutil.cpu_percent(interval=look_s)
    after = psutil.cpu_times()
    whole_s = (time.monotonic() - began_s) * (psutil.cpu_count() or 1)
    idle_s = after.idle - before.idle + getattr(after, "iowait", 0) - getattr(before, "iowait", 0)
    stolen_s = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    return max(0.0, whole_s - idle_s - stolen_s) / whole_s, stolen_s / whole_s


def cited(report: Report, reports: Sequence[Report]) -> Report:
    """The summary of all runs: VALID only if enough of them are and every ledger is clean."""
    good = [one for one in reports if one.valid and one.conclusion.clean]
    if len(good) >= LEAST_RUNS and len(good) == len(reports):
        return report
    reasons = list(dict.fromkeys(reason for one in reports for reason in one.invalid_reasons))
    first = (
        f"Not to be cited: {len(good)} of {len(reports)} runs are valid and clean; all must be, "
        f"and at least {LEAST_RUNS}."
    )
    changes = {"valid": False, "invalid_reasons": [first, *reasons]}
    return report.model_copy(update=changes)
