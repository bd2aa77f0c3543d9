"""A workload in words: its load, what it measures, how that is judged, and its source."""

from schemas.domain import DomainSpec
from schemas.protocol import Load, Phases, Workload
from schemas.search import Search
from schemas.workload import LEAST_WARM_UP_S, Validity


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
        lines.append(_search(workload.search, load.rate_per_second))
    if workload.scaling:
        lines.append(_scaling(workload))
    if workload.sustainable_share:
        lines.append(
            f"Rate: {workload.sustainable_share:.0%} of the last sustainable rate found for the "
            "pipeline and stages."
        )
    lines += [
        f"Kill: the {kill.target}, {kill.at_s} s into the measured phase."
        for kill in workload.kills
    ]
    if workload.measures:
        lines.append(f"Measured: {workload.measures}")
    if workload.source:
        lines.append(f"Source: {workload.source}.")
    return lines


def _content(workload: Workload) -> str:
    """Format, source and other settings of the workload's content."""
    given = workload.content.model_dump(exclude_unset=True, exclude={"format"})
    return ", ".join([workload.content.format, *(f"{name} = {one}" for name, one in given.items())])


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
        f"confirmed over {search.confirm_s} s. A step is sustained by the policy {search.policy} "
        f"if {_policy(search)} The search takes at most {search.budget_s:.0f} s, then a run at "
        f"{search.verify_share:.0%} of the rate found."
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
    tolerated = {
        "queue-by-time": f"for up to {queue.tolerated_s:g} s",
        "queue-by-count": f"for up to {queue.tolerated:.0%} of the input",
        "queue-combined": "if it is short again half way between",
    }[search.policy]
    return (
        f"the queue stays below {queue.unacceptable:.0%} of the step's input, and above "
        f"{queue.acceptable:.0%} only {tolerated}."
    )


def _given(load: Load) -> str:
    """The values of a load that differ from its shape's defaults, as in its file; parts by their
    shapes."""
    given = load.model_dump(exclude_defaults=True, exclude={"shape", "parts"})
    texts = [f"{name} = {value}" for name, value in given.items()]
    texts += [f"{part.shape} ({_given(part)})" for part in load.parts]
    return ", ".join(texts) or "as recorded"
