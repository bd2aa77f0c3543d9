"""A threshold: a limit on a figure of a run, as one line of text.

    join.p99_ms <= 50                     of every pipeline of the run
    spark-realtime: *.p99_ms <= 100       of every stage of one pipeline
    join.event_time.p50_ms < 900          of another definition of latency than `latest`
    tumbling.missing == 0                 a verdict; `not_exact` are all but exact
    pipeline.cpu_cores <= 1.5             what a pipeline used
    *.lost <= 0                           what was lost on the whole way, of the whole load
    input.send_delay_p99_ms <= 20         what was sent
    group.lag_seconds <= 30               of every consumer group of a watch
    pipeline.sustainable_rate_per_second >= 50000     what a search found
    join.p99_ms <= 1.1 * baseline         against the same figure of another run
    join.p99_ms <= 50 abort               ends the run as soon as it fails

Text after `#` is a comment. Figures cover the measured phase of a run. A watch has one stage, so
`p99_ms <= 50` and `visible.p99_ms <= 900` are enough there.
"""

import operator
import re
from collections.abc import Callable
from typing import Final, Literal, get_args

from schemas.model import Model
from schemas.percentiles import LATENCIES

LATENCY_FIGURES: Final = tuple(f"{name}_ms" for name in LATENCIES)
Definition = Literal["latest", "mean", "event_time", "window_time", "visible", "processing_time"]
DEFINITIONS: Final[tuple[str, ...]] = get_args(Definition)
OF_WATCH: Final = ("latest", "visible")
VERDICT_FIGURES: Final = (
    *("exact", "wrong", "missing", "late", "duplicate", "unexpected"),
    "not_exact",
)
GROWING_VERDICTS: Final = ("wrong", "late", "duplicate", "unexpected")
RATE: Final = "records_per_second"
LOST: Final = "lost"
OF_STAGE: Final = (*LATENCY_FIGURES, *VERDICT_FIGURES, "outputs", RATE, LOST)
SUSTAINABLE_RATE: Final = "sustainable_rate_per_second"
OF_RESOURCES: Final = (
    *("cpu_cores", "memory_mb", "heap_mb", "core_seconds_per_million_records", "lag_records"),
)
OF_PIPELINE: Final = (*OF_RESOURCES, SUSTAINABLE_RATE)
OF_INPUT: Final = (
    *("records", RATE, "send_delay_p50_ms", "send_delay_p99_ms", "send_delay_max_ms"),
)
LAG_RECORDS: Final = "lag_records"
LAG_SECONDS: Final = "lag_seconds"
OF_GROUP: Final = (LAG_RECORDS, LAG_SECONDS)
EVERY_STAGE: Final = "*"
PIPELINE: Final = "pipeline"
INPUT: Final = "input"
GROUP: Final = "group"  # or a stage of this name, which has other figures
MAX_CHARACTERS: Final = 300
COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}
_LINE = re.compile(
    r"(?:(?P<pipeline>[a-z0-9][a-z0-9-]{0,62})\s*:\s*)?"
    r"(?:(?P<subject>\*|[a-z][a-z0-9_]{0,31})\.(?:(?P<definition>[a-z_]+)\.)?)?"
    r"(?P<figure>[a-z0-9_]+)"
    r"\s*(?P<operator><=|>=|==|!=|<|>)\s*"
    r"(?P<value>-?[0-9]+(?:\.[0-9]+)?)?(?P<times>\s*\*\s*)?(?P<baseline>baseline)?"
    r"(?:\s+(?P<abort>abort))?\s*(?:#.*)?"
)


class Threshold(Model):
    """A parsed threshold.

    text: as written. pipeline: empty for all. subject: a stage, `*`, `pipeline`, `input`, `group`.
    value: the limit, or a factor of a baseline. abort: whether the run ends when it fails.
    """

    text: str
    pipeline: str = ""
    subject: str
    definition: Definition = "latest"
    figure: str
    operator: Literal["<=", "<", ">=", ">", "==", "!="]
    value: float
    of_baseline: bool = False
    abort: bool = False

    @property
    def needs_search(self) -> bool:
        """Whether it limits the result of a search for the sustainable rate."""
        return self.figure == SUSTAINABLE_RATE

    @property
    def is_of_groups(self) -> bool:
        """Whether it limits the lag of consumer groups."""
        return self.subject == GROUP and self.figure in OF_GROUP

    @property
    def is_of_verdicts(self) -> bool:
        """Whether it limits a number of outputs by their verdict."""
        return self.figure in VERDICT_FIGURES

    @property
    def is_known_early(self) -> bool:
        """Whether it can be judged while a run is going on: of verdicts a maximum of those whose
        number only grows. An output that is missing may still come."""
        if self.is_of_verdicts:
            is_maximum = self.operator in ("<=", "<") or (self.operator == "==" and not self.value)
            return is_maximum and self.figure in GROWING_VERDICTS
        return self.figure in (*LATENCY_FIGURES, *OF_RESOURCES)

    def holds(self, value: float | None) -> bool:
        """Whether a figure is within the limit; an unknown figure is not."""
        return value is not None and COMPARE[self.operator](value, self.value)

    def without_baseline(self, reason: str) -> "Threshold":
        """The same with the reason why it has no baseline's figure, so that it never holds."""
        line, _, _ = self.text.partition("#")
        return self.model_copy(
            update={"text": f"{line.rstrip()}  # {reason}"[:MAX_CHARACTERS].rstrip()}
        )

    def against(self, baseline: float, name: str) -> "Threshold":
        """The same with the limit computed from another run's figure."""
        limit = f"{round(self.value * baseline, 6):f}".rstrip("0").rstrip(".")
        text = self._with(limit)
        return parse_threshold(f"{text}  # {self.value:g} * baseline ({baseline:g} in {name})")

    def narrowed(self, pipeline: str, stage: str) -> "Threshold":
        """One on a baseline's figure for a pipeline and a stage alone. stage: empty for all of the
        pipeline."""
        subject = stage or self.subject
        result = self.model_copy(update={"pipeline": pipeline, "subject": subject})
        return result.model_copy(update={"text": result._with(f"{self.value:g} * baseline")})

    def _with(self, limit: str) -> str:
        """Its text with this limit."""
        subject = (
            self.subject if self.definition == "latest" else f"{self.subject}.{self.definition}"
        )
        which = f"{self.pipeline}: " if self.pipeline else ""
        end = " abort" if self.abort else ""
        return f"{which}{subject}.{self.figure} {self.operator} {limit}{end}"


def parse_threshold(text: str, stage: str = "") -> Threshold:
    """Parse a threshold. stage: subject of a figure, or of a definition, without one. Raises
    ValueError with the mistake and the allowed values."""
    line = " ".join(text.split())
    if len(line) > MAX_CHARACTERS:
        raise ValueError(f"a threshold has at most {MAX_CHARACTERS} characters")
    match = _LINE.fullmatch(line)
    if stage and match is not None and _has_no_subject(match, stage):
        at = match.start("subject" if match["subject"] else "figure")
        line = f"{line[:at]}{stage}.{line[at:]}"
        match = _LINE.fullmatch(line)
    if match is None or not (match["subject"] and (match["value"] or match["baseline"])):
        raise ValueError(
            f"{line[:80]!r} is not a threshold; examples: join.p99_ms <= 50,"
            " pipeline.cpu_cores < 1.5 or join.p99_ms <= 1.1 * baseline"
        )
    if bool(match["times"]) != bool(match["value"] and match["baseline"]):
        raise ValueError(f"{line[:80]!r}: the limit must be a number, or a number * baseline")
    _check(match["subject"], match["definition"], match["figure"])
    threshold = Threshold(
        text=line,
        pipeline=match["pipeline"] or "",
        subject=match["subject"],
        definition=match["definition"] or "latest",
        figure=match["figure"],
        operator=match["operator"],
        value=float(match["value"] or 1),
        of_baseline=bool(match["baseline"]),
        abort=bool(match["abort"]),
    )
    if threshold.abort and not threshold.is_known_early:
        raise ValueError(
            f"{threshold.figure} is known only at the end of a run; abort supports latencies,"
            " figures of a pipeline's resources, and upper limits of"
            f" {', '.join(GROWING_VERDICTS)}"
        )
    return threshold


def parse_watch_threshold(
    text: str, watch: str, stages: tuple[str, ...], kind: str, *, has_groups: bool = False
) -> Threshold:
    """Parse a threshold on the runs of a watch with some stages, of which the first need not be
    named, and a kind of relation. has_groups: whether the watch names consumer groups. Raises
    ValueError also for what such a run does not have."""
    threshold = parse_threshold(text, stages[0])
    if threshold.of_baseline or threshold.abort:
        raise ValueError(f"{threshold.text!r}: a watch has neither baseline nor abort")
    if threshold.pipeline not in ("", watch):
        raise ValueError(f"{threshold.text!r}: the pipeline of this watch is {watch}")
    if threshold.is_of_groups:
        if not has_groups:
            raise ValueError(f"{threshold.text!r}: this watch names no consumer groups in groups")
        return threshold
    if threshold.subject not in (EVERY_STAGE, *stages, PIPELINE, INPUT):
        named = f"stage of this watch is {stages[0]}"
        if len(stages) > 1:
            named = f"stages of this watch are {', '.join(stages)}"
        raise ValueError(f"{threshold.text!r}: the {named}")
    left_out = {"wrong", LOST} | ({"missing"} if kind == "filter" else set())
    of_stage = (each for each in OF_STAGE if each not in left_out)
    of_input = (f"{INPUT}.{each}" for each in OF_INPUT if not each.startswith("send_delay_"))
    allowed = (*of_stage, *of_input)
    is_of_stage = threshold.subject in (EVERY_STAGE, *stages)
    figure = threshold.figure if is_of_stage else f"{threshold.subject}.{threshold.figure}"
    if threshold.definition not in OF_WATCH:
        figure = f"{threshold.definition}.{figure}"
    if figure not in allowed:
        has = f"{', '.join(allowed)}, and latencies as visible.p99_ms"
        raise ValueError(f"{threshold.text!r}: a {kind} watch has no {figure}; it has: {has}")
    return threshold


def _has_no_subject(match: re.Match[str], stage: str) -> bool:
    """Whether a line has no stage: what stands in its place is nothing, or a definition."""
    subject = match["subject"]
    return not subject or (subject in DEFINITIONS and subject != stage and not match["definition"])


def _check(subject: str, definition: str | None, figure: str) -> None:
    others = {PIPELINE: OF_PIPELINE, INPUT: OF_INPUT, GROUP: (*OF_STAGE, *OF_GROUP)}
    allowed = others.get(subject, OF_STAGE)
    if figure not in allowed:
        raise ValueError(f"{subject} has no figure {figure!r}; it has: {', '.join(allowed)}")
    if definition is not None and definition not in DEFINITIONS:
        raise ValueError(f"there is no latency {definition!r}; there are: {', '.join(DEFINITIONS)}")
    if definition is not None and figure not in LATENCY_FIGURES:
        raise ValueError(f"{figure} is not a latency, so it has no {definition}")
