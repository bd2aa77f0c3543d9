"""Decides what may be compared: one run, or runs of the same workload, rate, domain and machine.
Pure.

All other differences between two sides are listed. If a run was unsteady, disturbed or not valid,
every difference applies to those runs only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from analysis.thresholds import outcome
from schemas.report import Report, RunOutcome
from schemas.workload import Workload

Fields = dict[str, str]
Request: TypeAlias = dict[str, Any]  # of a run or a watch, as it is stored
# Fields that distinguish loads of workloads with the same name, and their display names.
LOAD = {
    "content": "records",
    "faults": "faults",
    "kills": "kills",
    "pipelines_start_s": "start of the pipelines",
    "search": "search",
}
GIGABYTE = 1e9
EXPECTED = ("exact", "wrong", "late", "missing")  # verdicts of expected outputs
MISSING_SHARE = 0.001  # missing outputs have no latency: more of them may change a percentile
NOT_SETTINGS = ("name", "summary")
OF_ENVIRONMENT = ("tidegauge", "java", "python", "broker", "system", "host")
UNKNOWN = ("", "None")


@dataclass(frozen=True)
class Facts:
    """Facts of one run: its report, its request as JSON, and the engine version of each pipeline
    that reported it."""

    report: Report
    request: Request
    versions: dict[str, str]

    @property
    def run_id(self) -> str:
        """The run."""
        return self.report.run_id

    @property
    def rate_after_search(self) -> str:
        """The rate at which a search measured latencies; empty for other runs."""
        rate = self.report.search.verified_at_per_second
        return f"{rate:.10g} records/s" if rate else ""

    def has(self, pipeline: str) -> bool:
        """Whether a pipeline was measured in the run."""
        return any(each["name"] == pipeline for each in self.request["pipelines"])

    def circumstances(self, pipeline: str) -> Fields:
        """Other circumstances that may make a difference, by name."""
        of = next(each for each in self.request["pipelines"] if each["name"] == pipeline)
        result = {name: in_words(of[name]) for name in sorted(of) if name not in NOT_SETTINGS}
        beside = sorted(
            each["name"] for each in self.request["pipelines"] if each["name"] != pipeline
        )
        result |= {
            "version of the engine": self.versions.get(pipeline, ""),
            "stages": in_words(self.request["stages"]),
            "other pipelines": in_words(beside) or "none",
        }
        if phases := self.request["workload"].get("phases"):  # a watch has none
            warm_up = self.report.conclusion.warm_up
            partitions = self.request["workload"].get("partitions")
            result |= {
                "warm-up": f"{warm_up.get('seconds', phases['warm_up_s'])} s",
                "partitions": in_words(partitions) or "default",
                "measured": f"{phases['measure_s']} s",
                "profile": self.request.get("profile") or "none",
                "compilers": _compilers(Workload.model_validate(self.request["workload"])),
            }
        result |= {
            "steady": _yes(self.report.steady),
            "disturbed": _yes(self.report.disturbed),
            "valid": _yes(self.report.valid),
        }
        if watch := self.request.get("watch"):
            result |= {name: in_words(watch.get(name)) for name in ("relation", "share", "run_s")}
        if self.rate_after_search:
            result["rate after the search"] = self.rate_after_search
        environment = self.report.environment
        result |= {name: str(environment.get(name, "")) for name in OF_ENVIRONMENT}
        packages = environment.get("packages") or {}
        return result | {name: str(version) for name, version in packages.items()}

    def doubts(self) -> list[str]:
        """See `doubts_of`, for its report."""
        return doubts_of(self.report)


def identity_of(request: Request) -> Fields:
    """What runs must share to be comparable with the run of a request, by name."""
    if watch := request.get("watch"):
        return _identity_of_watch(watch)
    workload, load = request["workload"], dict(request["workload"]["load"])
    rate = load.pop("rate_per_second", 0)
    given = f"{rate:.10g} records/s" if rate else ""
    turns = request.get("interleaved") or {}
    environment = request["environment"]
    return {
        "workload": str(workload["name"]),
        "rate": "found by a search" if workload.get("search") else given,
        "load": in_words(load),
        "transport": str(workload.get("transport", "kafka")),
        **{name: in_words(workload.get(key) or {}) for key, name in LOAD.items()},
        "turns": in_words({"block_s": turns.get("block_s")}),
        "windows": in_words(workload.get("windows") or {}),
        "domain": domain_of(request),
        "processor": str(environment.get("processor", "")),
        "cores": str(environment.get("cores", "")),
        "memory": f"{(environment.get('memory_bytes') or 0) / GIGABYTE:.0f} GB",
    }


def _identity_of_watch(watch: dict[str, Any]) -> Fields:
    sides = {side: [each["topic"] for each in watch[side]] for side in ("inputs", "outputs")}
    identity = {"watch": str(watch["name"]), "relation": str(watch["relation"]["kind"])}
    return identity | {side: in_words(topics) for side, topics in sides.items()}


def is_doubtful(report: Report) -> bool:
    """Whether a run is known to have been unsteady or disturbed."""
    return report.steady is False or bool(report.disturbed)


def outcome_with_doubts(report: Report) -> RunOutcome:
    """The report as one of several runs."""
    return outcome(report).model_copy(update={"doubts": doubts_of(report)})


def doubts_of(report: Report) -> list[str]:
    """Why a difference of a run may have a cause other than the pipeline, one text each. Unknown
    facts are not reasons."""
    result, run_id = [], report.run_id
    if not report.valid:
        result.append(f"{run_id} is not valid")
    if report.steady is False:
        moving = report.conclusion.warm_up.get("moving", ())
        what = f" ({'; '.join(moving)})" if moving else ""
        result.append(f"{run_id} was not steady{what}")
    if report.disturbed:
        explanation = report.late.said
        result.append(f"{run_id} was disturbed{f' ({explanation})' if explanation else ''}")
    for name, pipeline in report.pipelines.items():
        for stage, cell in pipeline.stages.items():
            counts = {verdict: cell.verdicts.get(verdict, 0) for verdict in EXPECTED}
            if counts["missing"] > MISSING_SHARE * sum(counts.values()):
                result.append(
                    f"{run_id}: missing outputs of {name} {stage}, which have no latency: "
                    f"{counts['missing']}"
                )
    return result


def left_out(runs: Sequence[Facts]) -> dict[str, str]:
    """Why a run is not comparable with the first, in a sentence, by run id."""
    result: dict[str, str] = {}
    first = identity_of(runs[0].request) if runs else {}
    for run in runs[1:]:
        if differs := apart(identity_of(run.request), first):
            result[run.run_id] = f"{run.run_id} is left out: {'; '.join(differs)}."
    return result


def apart(identity: Fields, other: Fields) -> list[str]:
    """Differences of two identities, such as `cores 4, not 2`."""
    return [
        f"{name} {_or_none(identity.get(name, ''))}, not {_or_none(other.get(name, ''))}"
        for name in identity | other
        if identity.get(name) != other.get(name)
    ]


def differed(before: Iterable[Fields], after: Iterable[Fields]) -> list[str]:
    """Differences between both sides, such as `warm-up 10 s and 60 s`. Facts unknown for any run of
    a side are skipped."""
    sides = [list(before), list(after)]
    names = dict.fromkeys(name for side in sides for each in side for name in each)
    result = []
    for name in names:
        values = [list(dict.fromkeys(each.get(name, "") for each in side)) for side in sides]
        if values[0] != values[1] and not any(
            value in UNKNOWN for each in values for value in each
        ):
            result.append(f"{name} {' or '.join(values[0])} and {' or '.join(values[1])}")
    return result


def domain_of(request: Request) -> str:
    """Domain of a run, given its request as JSON; a watch has none."""
    if "watch" in request:
        return ""
    return str(request["domain"]["name"])


def needed_of(reports: Iterable[Report]) -> str:
    """What is needed for differences of these runs to count, in a sentence."""
    result = []
    for report in reports:
        if report.steady is False:
            result.append("a longer warm-up (--warm-up auto)")
        if report.disturbed:
            result.append("a quiet machine")
        if not report.valid:
            result.append("valid runs")
    return f"Needed: {' and '.join(dict.fromkeys(result))}." if result else ""


def in_words(value: Any) -> str:
    """Settings as text; empty values are skipped."""
    if isinstance(value, dict):
        items = ((name, in_words(each)) for name, each in sorted(value.items()))
        return ", ".join(f"{name} {text}" for name, text in items if text)
    if isinstance(value, list | tuple):
        return ", ".join(in_words(each) for each in value)
    return "" if value in (None, "") else str(value)


def _compilers(workload: Workload) -> str:
    if workload.is_optimised:
        return "for optimised code"
    return f"for a {'long' if workload.has_long_warm_up else 'short'} warm-up"


def _yes(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def _or_none(text: str) -> str:
    return text or "none"
