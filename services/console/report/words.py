"""A report in sentences, which all of its forms share. Pure."""

from collections.abc import Iterator

from analysis.costs import COST
from analysis.described import in_words
from analysis.room import HEAP
from analysis.thresholds import left_to_thresholds, not_exact
from schemas.protocol import FAILED_VERDICTS, floor_run_id
from schemas.report import (
    BaselineComparison,
    GroupLag,
    Input,
    Latency,
    Loss,
    Median,
    NotJudged,
    Number,
    PipelineReport,
    RepeatedSearch,
    Report,
    Restart,
    RunOutcome,
    SearchResult,
    StepResult,
    WarmUp,
    WatchReport,
)

INTERVALS = "±: 95 % confidence interval, from the variation between seconds of this run"
# What qualifies a valid run.
UNSTEADY = "But it was not steady: its figures were still changing."
DISTURBED = "But it was disturbed: its latencies are not due to the pipeline alone."
UNMEASURED = "But its timestamps cannot measure latency, nor tell which outputs are late."
EXPIRED = (
    "The latencies of single seconds of this run have expired (docs/sql.md), so the"
    " recovery of stages cannot be shown."
)
REFUSED = "refused"
# What became of records that were not judged, by kind (services/watcher/troubles.py).
NOT_JUDGED = {
    REFUSED: "could not be evaluated",
    "other_type": "not concerned",
    "tombstone": "not concerned",
    "delete": "not concerned",
    "removed": "missing",
}
ENDED_BY = {
    "steps": "The search ended after the highest number of steps that its workload allows.",
    "budget": "The search ended after the time that its workload allows.",
    "highest rate": "The search ended at the highest rate that its workload allows.",
}
REPEATED_FIGURES = ("p50", "p95", "p99")
SHOWN = 3  # changing figures, and reasons
SHOWN_NAMES = 5
SHOWN_CHARACTERS = 100


# The run


def input_sentence(source: Input) -> str:
    """The amount of input, and its send delay if it was sent on a schedule."""
    delay = source.send_delay_ms
    text = f"input {source.records} records, {source.records_per_second or 0:.1f}/s"
    if delay.p50 is None:
        return text
    levels = f"p50 {ms(delay.p50)}, p99 {ms(delay.p99)}, max {ms(delay.max)}"
    return f"{text}; send delay {levels} ms"


def way_in_sentences(report: Report) -> list[str]:
    """`By udp: 40000 frames sent, 39960 appended, 40 lost (0.10%); …`; none if records were sent
    directly to Kafka."""
    way_in = report.way_in
    if way_in is None:
        return []
    sent, lost = way_in.sent, way_in.lost
    share = f" ({lost / sent:.2%})" if lost and sent else ""
    text = (
        f"By {way_in.transport}: {sent} frames sent, {way_in.appended} appended, {lost} lost{share}"
    )
    for name in ("not_appended", "duplicates", "refused", "turned_away"):
        if count := getattr(way_in, name):
            text += f", {count} {name.replace('_', ' ')}"
    transit, append = way_in.transit_us, way_in.append_ms
    if transit.p50 is not None:
        text += f"; to the gateway p50 {transit.p50} and p99 {transit.p99} µs"
    if append.p50 is not None:
        text += f", from there into Kafka p50 {append.p50} and p99 {append.p99} ms"
    return [text + "."]


def loss_sentences(report: Report) -> Iterator[str]:
    """What each stage lost on the whole way and where, of a load sent over the network; and its
    latency behind sockets."""
    for name, pipeline in report.pipelines.items():
        for stage, cell in pipeline.stages.items():
            if (times := cell.socket_ns) is not None and times.count:
                yield (
                    f"{name} {stage}, from sending a record to receiving the result: "
                    f"p50 {_ns(times.p50)}, p99 {_ns(times.p99)}, max {_ns(times.max)} ns."
                )
            if (loss := cell.loss) is not None:
                yield f"{name} {stage}: {_lost(loss)}."


def _lost(loss: Loss) -> str:
    """`10 lost of the whole load: 4 records before the system, 6 results in it, 0 after it`."""
    if not loss.lost:
        return "nothing lost of the whole load"
    places = {
        "before the system": loss.before,
        "in it": loss.inside,
        "after it": loss.after,
    }
    known = [f"{count} {place}" for place, count in places.items() if count is not None]
    unknown = [place for place, count in places.items() if count is None]
    text = f"{loss.lost} lost of the whole load: {', '.join(known)}"
    return f"{text}{', ' if known else ''}unknown {' and '.join(unknown)}" if unknown else text


def _ns(value: Number | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def remarks(report: Report) -> list[str]:
    """What a reader must know beside the figures and the steadiness, in all forms alike."""
    return [
        *interleaved_sentences(report),
        *filter(None, (floor_sentence(report), report.late.said)),
        *watch_sentences(report),
        *start_sentences(report),
        *definition_sentences(report),
        *loss_sentences(report),
        *([EXPIRED] if report.seconds_expired else []),
        *([left_out_sentence(report.left_out)] if report.left_out else []),
    ]


def warm_up_sentence(report: Report) -> str:
    """Whether a run was steady while it was measured, and which figures were not; empty if not
    checked."""
    warm_up = report.warm_up
    if warm_up is None:
        return ""
    after = f"after {warm_up.seconds} s of warm-up"
    if report.steady:
        return " ".join((f"Steady in the measured phase, {after}.", *_of_machine(warm_up)))
    if report.steady is None:
        return f"Steadiness unknown: {warm_up.unknown}." if warm_up.unknown else ""
    moving = f"NOT STEADY in the measured phase, {after}; still changing: "
    moving += f"{first_of(warm_up.moving)}."
    longer = "for longer (--warm-up S)" if warm_up.until_steady else "with --warm-up auto"
    return " ".join((moving, *(_of_machine(warm_up) or [f"Warm up {longer}."])))


def _of_machine(warm_up: WarmUp) -> list[str]:
    """Changes of CPU time that the machine's performance explains, in a sentence; empty without
    any."""
    if not warm_up.of_machine:
        return []
    return [
        "The machine's performance changed, as the generator's CPU time per record shows: "
        f"{first_of(warm_up.of_machine)}."
    ]


def first_of(sentences: list[str]) -> str:
    """The first SHOWN, and the number of others."""
    more = f"; and {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    return f"{'; '.join(sentences[:SHOWN])}{more}"


def floor_sentence(report: Report) -> str:
    """The latency of Tidegauge itself; empty if it was not to be measured."""
    floor = report.floor
    if floor is None:
        of_floor = floor_run_id(report.run_id)
        text = f"Floor: unknown; the run {of_floor} is not valid or did not take place."
        return text if report.floor_s else ""
    return (
        f"Floor: a plain copy took p50 {floor.p50}, p95 {floor.p95}, p99 {floor.p99}, "
        f"max {floor.max} ms, just before this run on the same stack."
    )


def left_out_sentence(left_out: list[str]) -> str:
    """Which results are in no table because their pipeline or stage is not in the run's plan."""
    names = [f"“{name[:SHOWN_CHARACTERS]}”" for name in left_out[:SHOWN_NAMES]]
    more = len(left_out) - len(names)
    names += [f"{more} more"] if more else []
    return f"Results that are not in the run's plan are left out: {', '.join(names)}."


def restart_sentence(name: str, pipeline: PipelineReport, restart: Restart) -> str:
    """The outage of a killed pipeline and its effect on outputs."""
    missing = sum(cell.verdicts["missing"] for cell in pipeline.stages.values())
    lost = f"{missing} are missing" if missing else "none is missing"
    if restart.outage_s is None:
        return f"{name} was killed and did not recover; of its outputs {lost}."
    return (
        f"{name} was killed and unavailable for {restart.outage_s:.1f} s. As a result "
        f"{restart.late} outputs were late and {restart.duplicate} were duplicates; {lost}."
    )


def start_sentences(report: Report) -> Iterator[str]:
    """Which pipelines were started again before the load, how often and why."""
    for name, start in report.conclusion.starts_again.items():
        times = "once" if start.times == 1 else f"{start.times} times"
        yield (
            f"{name} was started again {times} before the load, because the machine was busy: "
            f"{start.reason}"
        )


def evaluator_sentence(restarts: int) -> str:
    """How often the evaluator restarted, and why that changes no figure."""
    times = "once" if restarts == 1 else f"{restarts} times"
    return f"The evaluator was restarted {times} and recounted this run from the topics."


def definition_sentences(report: Report) -> list[str]:
    """Latencies of each stage by the definitions that not every stage has: until consumers of
    committed records had its outputs, and from when it was handed its inputs."""
    texts = []
    for name, pipeline in report.pipelines.items():
        for stage, cell in pipeline.stages.items():
            visible = cell.latency_ms.get("visible")
            processing = cell.latency_ms.get("processing_time")
            parts = []
            if processing is not None:
                parts.append(f"once handed its inputs, it took {_tail(processing)}")
            if visible is not None:
                parts.append(f"readers of committed records have an output after {_tail(visible)}")
            if cell.aborted:
                parts.append(f"{cell.aborted} records were aborted")
            if parts:
                texts.append(f"{name} {stage}: {'; '.join(parts)}.")
    return texts


def _tail(latency: Latency) -> str:
    """`p50 1, p99 9, max 12 ms`."""
    return f"p50 {ms(latency.p50)}, p99 {ms(latency.p99)}, max {ms(latency.max)} ms"


def lag_sentences(report: Report) -> list[str]:
    """How far behind the pipelines read, in one sentence; none if no pipeline reported it."""
    lags = [
        f"{name} {lag.max} and {lag.end}"
        for name, pipeline in report.pipelines.items()
        if (lag := pipeline.lag_records) is not None
    ]
    return [f"Lag in records, maximum and at the end: {', '.join(lags)}."] if lags else []


def delay_sentences(report: Report) -> list[str]:
    """How long the schedulers of pipelines delayed their tasks, in one sentence."""
    delays = [
        f"{name} {delay.p50:.0f} and {delay.p99:.0f} ms ({delay.tasks} tasks)"
        for name, pipeline in report.pipelines.items()
        if (delay := pipeline.scheduler_delay_ms) is not None
    ]
    return [f"Scheduler delay of a task, p50 and p99: {', '.join(delays)}."] if delays else []


def cost_sentences(report: Report) -> list[str]:
    """What each pipeline cost per record, and the cost of observing it, if known."""
    texts = []
    for name, pipeline in report.pipelines.items():
        cost = pipeline.resources.core_seconds_per_million_records
        if cost is not None:
            low, high = pipeline.resources.core_seconds_interval or (None, None)
            within = "" if low is None else f" ±{max(cost - low, (high or 0) - cost):.0f}"
            texts.append(f"{name} used {cost:.0f}{within} core-seconds per million input records.")
    observing = report.observing
    if observing.cpu_cores is not None:
        share = f", {observing.share:.0%} of all CPU time used" if observing.share else ""
        texts.append(f"Tidegauge itself used {observing.cpu_cores:.2f} cores{share}.")
    return texts


# The verdict


def verdict(report: Report) -> tuple[str, str]:
    """Whether the run is valid and whether every output was correct, in a sentence or two; and how
    good that is: `good`, `mixed` or `bad`. Of several choices of settings, of all runs."""
    if report.sweep is None:
        return _of_run(report)
    runs = repeated_runs(report)
    if wrong := sum(bool(complaints(run)) for run in runs):
        return f"{wrong} of {len(runs)} runs were not good.", "bad"
    return f"All {len(runs)} runs are VALID and clean.", "good"


def _of_run(report: Report) -> tuple[str, str]:
    if not report.valid:
        return "INVALID: " + " ".join(report.invalid_reasons), "bad"
    if wrong := wrong_outputs(report):
        why = "All of this is due to the restart; nothing was lost." if _restarted(report) else ""
        return f"VALID, but the ledger is not clean: {wrong}. {why}".rstrip(), "mixed"
    if not report.conclusion.clean:
        of_watch = " ".join(watch_complaints(report))
        return f"VALID, but {of_watch if report.watch else 'no output was judged.'}", "mixed"
    if report.is_unmeasured:
        return f"VALID: every expected output was published once. {UNMEASURED}", "mixed"
    sentences = ["VALID: every expected output was published once, exact and in time."]
    sentences += [UNSTEADY] if report.steady is False else []
    sentences += [DISTURBED] if report.disturbed else []
    return " ".join(sentences), "mixed" if len(sentences) > 1 else "good"


def _restarted(report: Report) -> bool:
    """Whether restarts explain all late and duplicate outputs and there are no other errors."""
    for pipeline in report.pipelines.values():
        for name in FAILED_VERDICTS:
            explained = sum(getattr(restart, name, 0) for restart in pipeline.restarts)
            if sum(cell.verdicts[name] for cell in pipeline.stages.values()) > explained:
                return False
    return True


def is_clean(report: Report) -> bool:
    """Whether every output was correct, also those after the conclusion."""
    return report.conclusion.clean and not wrong_outputs(report)


def wrong_outputs(report: Report) -> str:
    """The outputs of each stage with other verdicts than exact; empty without any."""
    return "; ".join(
        f"{name} {stage} has {bad}"
        for name, pipeline in report.pipelines.items()
        for stage, cell in pipeline.stages.items()
        if (bad := not_exact(cell.verdicts))
    )


def baseline_sentence(compared: BaselineComparison) -> str:
    """Whether the comparison with a baseline passed, as a word."""
    words = {True: "Passed", False: "Failed", None: "Skipped, not passed"}
    return words[compared.passed]


# A watch


def watch_complaints(report: Report) -> list[str]:
    """Why the outputs of a watch's run are not good, a sentence each: verdicts other than exact
    that no threshold limits, records that could not be evaluated, or no exact output at all."""
    limited = left_to_thresholds(report.thresholds)
    complaints = []
    for pipeline in report.pipelines.values():
        for stage, cell in pipeline.stages.items():
            bad = not_exact(cell.verdicts, limited)
            complaints += [f"{stage} has {bad}."] if bad else []
            complaints += [] if cell.verdicts["exact"] else [f"{stage} has no exact output."]
    watch = report.watch or WatchReport()
    if watch.refused:
        reasons = [row.reason for row in watch.not_judged if row.kind == REFUSED]
        why = f": {'; '.join(reasons[:SHOWN])}" if reasons else ""
        complaints.append(f"{watch.refused} records were not evaluated{why}.")
    return complaints


def watch_sentences(report: Report) -> list[str]:
    """Whose clocks the latencies of a watch are based on, and what was not counted."""
    watch = report.watch
    if watch is None:
        return []
    sentences = [watch.times, *_negative(report), *_amounts(report)]
    shares = [share for _, share in watch.shares]
    counted = "identities was counted; verdicts and latencies of the sample are exact."
    if len(set(shares)) > 1:
        least, most = (f"one in {1 / share:g}" for share in (min(shares), max(shares)))
        sentences.append(
            f"Depending on rate and memory, a hash sample of {least} to {most} {counted}"
        )
    elif watch.share < 1:
        sentences.append(f"A hash sample of one in {1 / watch.share:g} {counted}")
    if watch.refused and not watch.not_judged:
        sentences.append(f"{watch.refused} records have no identity and were not evaluated.")
    return sentences + [_not_judged(row) for row in watch.not_judged]


def _amounts(report: Report) -> list[str]:
    known = {side: mean for side, mean in report.mean_bytes.items() if mean is not None}
    sizes = " and ".join(f"{mean:.0f} bytes per {side}" for side, mean in known.items())
    lags = [sentence for lag in report.groups for sentence in _lag_sentences(lag)]
    return [*([f"Values have {sizes} on average."] if sizes else []), *lags]


def _lag_sentences(lag: GroupLag) -> Iterator[str]:
    yield f"{lag.group} was at most {lag.max} records behind on {lag.topic}, {lag.last} at the end."
    if lag.max_s is None:
        return
    last = "unknown" if lag.last_s is None else f"{lag.last_s:.3f} s"
    when = ""
    if lag.last:
        when = ", and it did not catch up"
        if lag.caught_up_in_s is not None:
            when = f", and it would have caught up in {lag.caught_up_in_s:.0f} s"
    yield (
        f"The oldest record that it had to read next was at most {lag.max_s:.3f} s old, {last} at "
        f"the end{when}."
    )


def _not_judged(row: NotJudged) -> str:
    records = "1 record" if row.records == 1 else f"{row.records} records"
    text = f"{row.topic}: {records} {NOT_JUDGED.get(row.kind, 'not judged')}: {row.reason}"
    if row.offset < 0:
        return f"{text}."
    return f"{text} (first: partition {row.partition}, offset {row.offset})."


def _negative(report: Report) -> list[str]:
    """How many latencies are negative, and what that means."""
    return [
        f"{cell.latest.negative} of {cell.latest.count} latencies of {stage} are negative, the "
        f"lowest {cell.latest.min} ms: the clocks of producers or brokers differ, or outputs were "
        "published before their inputs."
        for pipeline in report.pipelines.values()
        for stage, cell in pipeline.stages.items()
        if cell.latest.negative
    ]


# A search


def search_sentence(search: SearchResult) -> str:
    """The result of a search in a sentence or two."""
    rate, (low, high) = search.rate_per_second, search.interval_per_second
    if rate is None:
        return f"No sustainable rate was found. {limit_sentence(search)}".rstrip()
    above = f"below {high:.0f}/s" if high is not None else "no upper bound found"
    text = f"Sustainable: {rate:.0f} records/s (from {low or 0:.0f}/s, {above}; {search.policy})"
    if not search.confirmed:
        text += ", not confirmed by a longer step"
    took_place = "did not take place"
    if search.verified:
        took_place = "was sustained"
    elif search.verification is not None:
        took_place = "was NOT sustained"
    ended = ENDED_BY.get(search.ended_by, "")
    text = " ".join(filter(None, (f"{text}.", limit_sentence(search), ended)))
    return f"{text} The run at {search.verified_at_per_second or 0:.0f}/s {took_place}."


def limit_sentence(search: SearchResult) -> str:
    """Why the next higher rate was not sustained; empty if not known."""
    part = search.limited_by
    if not part:
        return ""
    if part == HEAP:
        return "Limited by the heap of the pipeline's JVM, which is not the limit of the engine."
    return (
        f"Limited by the {part}."
        if part == "pipeline"
        else f"Limited by the {part}, not by the pipeline."
    )


def step_reasons(step: StepResult) -> str:
    """Why a step was not sustained, and what was not steady."""
    moving = first_of(step.moving)
    return " ".join([*step.reasons, *([f"Not steady: {moving}."] if moving else [])])


def unsteady_sentences(report: Report) -> list[str]:
    """The sustained steps of a search that were not steady, one sentence each. At other rates
    latencies rise because of the load."""
    return [
        f"The step at {step.rate_per_second:.0f}/s was sustained, but not steady: "
        f"{first_of(step.moving)}."
        for step in report.search.steps
        if step.sustained and step.moving
    ]


# Several runs, and pipelines that took turns


def interleaved_sentences(report: Report) -> list[str]:
    """The decision and its basis; empty for a run that was not interleaved."""
    turns = report.interleaved
    if turns is None:
        return []
    length = turns.block_s - 2 * turns.edge_s
    of_runs = f" of {turns.runs[0]}" if turns.runs else ""
    if len(turns.runs) > 1:
        of_runs = f" of {len(turns.runs)} runs"
    rows = [in_words(row) for row in turns.described if not row.stage]
    order = " → ".join(dict.fromkeys(turns.order))
    beside = f"Described only, {order}, with an interval of its own: "
    return [
        f"Interleaved: {turns.said}",
        f"From {turns.blocks} blocks of {turns.block_s} s{of_runs}, compared in pairs, using "
        f"the middle {length} s of each; all intervals hold together with "
        f"{turns.confidence:.0%} confidence.",
        *([f"{beside}{'; '.join(rows)}."] if rows else []),
    ]


def complaints(run: RunOutcome) -> list[str]:
    """Why one of several runs does not count as good, a sentence each. They decide the exit code,
    whichever run is the median run."""
    reasons = [*run.invalid_reasons, *run.failed_thresholds]
    if run.valid and not run.clean:
        reasons.append("Not every output was exact.")
    return reasons


def repeated_runs(report: Report) -> list[RunOutcome]:
    """The runs of a repetition, or of several choices of settings; empty for a single run."""
    if report.sweep is not None:
        return [run for point in report.sweep for run in point.outcomes]
    return report.repetition.runs if report.repetition else []


def complaint_lines(report: Report) -> list[str]:
    """A line for each of several runs with complaints."""
    return [
        f"{run.run_id}: {' '.join(reasons)}"
        for run in repeated_runs(report)
        if (reasons := complaints(run))
    ]


def doubt_lines(report: Report) -> list[str]:
    """Which of several valid runs were unsteady or disturbed, a sentence each."""
    return [f"{doubt}." for run in repeated_runs(report) if run.valid for doubt in run.doubts]


def median_lines(report: Report) -> list[str]:
    """The medians over several runs with their intervals, a line for each stage, cost, and search;
    none for a single run."""
    if report.repetition is None:
        return []
    lines = []
    for pipeline, medians in report.repetition.pipelines.items():
        for stage, cell in medians.stages.items():
            latest = cell.latency_ms["latest"]
            figures = [f"{figure} {_interval(latest[figure])}" for figure in REPEATED_FIGURES]
            lines.append(f"{pipeline} {stage}: {', '.join(figures)} ms")
        if cost := medians.resources.get(COST):
            lines.append(f"{pipeline}: {_interval(cost)} core-seconds per million records")
    if search := report.repetition.search:
        lines.append(searches_sentence(search))
    return lines


def _interval(figure: Median) -> str:
    if figure.low is None:
        return f"{figure.median:.4g}"
    return f"{figure.median:.4g} [{figure.low:.4g}–{figure.high:.4g}]"


def runs_sentence(report: Report) -> str:
    """What the medians and the text in brackets after them are; empty without an interval."""
    if report.repetition is None or report.repetition.confidence is None:
        return ""
    confidence = 100 * report.repetition.confidence
    between = f"interval at {confidence:.4g}% confidence, from the variation between runs"
    if sum(run.valid for run in report.repetition.runs) == 2:
        between = "both values; two runs are too few for an interval"
    return f"median of the runs [{between}]"


def searches_sentence(search: RepeatedSearch) -> str:
    """The result of several searches for the sustainable rate."""
    low, high = search.interval_per_second
    rates = ", ".join(f"{rate:.0f}" for rate in search.rates_per_second)
    above = f"{low or 0:.0f}/s and no known upper bound"
    if high is not None:
        above = f"{low or 0:.0f} and {high:.0f}/s"
    return (
        f"Searches found {rates} records/s: they differ by {search.differ_by:.0%}, and the "
        f"sustainable rate is between {above}."
    )


def median_run_sentence(report: Report) -> str:
    """Which run the report shows."""
    run_id = report.repetition.median_run if report.repetition else None
    if not run_id:
        return "above is the last run, because none is valid"
    is_above = run_id == report.run_id
    return f"above is the median run {run_id}" if is_above else f"the median run is {run_id}"


def ms(value: float | None) -> str:
    """A latency without its unit; a dash if unknown."""
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.1f}"
