"""Judges the state of a run: is it valid, and was every output correct?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.thresholds import ENDED, judged, judged_early
from schemas import protocol
from schemas.events import Concluded, RunJudged
from schemas.percentiles import quantile
from services.conductor.run_state import RunState
from services.runtime.events import Events


@dataclass(frozen=True)
class RunVerdict:
    """clean: every expected output was exact and there were no others. reasons: why the run is not
    valid, one sentence each."""

    clean: bool
    reasons: tuple[str, ...]
    detail: dict[str, Any]

    @property
    def valid(self) -> bool:
        """The run is valid."""
        return not self.reasons

    def tell(self, events: Events, run_id: str) -> None:
        """Publish the conclusion, which ends the run."""
        events.publish(RunJudged(run_id=run_id, invalid_reasons=self.reasons, **self.detail))
        self.announce(events, run_id)

    def announce(self, events: Events, run_id: str) -> None:
        """Announce the published conclusion to those waiting for it."""
        events.publish(
            Concluded(
                run_id=run_id, valid=self.valid, clean=self.clean, invalid_reasons=self.reasons
            )
        )


def conclude(state: RunState) -> RunVerdict:
    """Judge a whole run by its workload's validity rules."""
    reasons = [*_load_reasons(state), *_judging_reasons(state)]
    if reasons and state.broker_death:
        reasons.append(_sentence(state.broker_death))
    verdicts = state.drained.verdicts if state.drained else {}
    clean = bool(verdicts) and not any(
        counts[verdict]
        for stages in verdicts.values()
        for counts in stages.values()
        for verdict in protocol.FAILED_VERDICTS
    )
    detail: dict[str, Any] = {"clean": clean, "verdicts": verdicts}
    detail["clock_offset_ms"] = state.clock_offset_ms
    detail["evaluator_restarts"] = state.resumed
    detail["starts_again"] = state.starts_again
    result = state.steadiness()
    detail["warm_up"] = {
        "steady": result.steady,
        "moving": list(result.moving),
        "unknown": result.unknown,
        "of_machine": list(result.of_machine),
        "until_steady": state.request.workload.phases.until_steady,
        "seconds": state.phases.phases.warm_up_s if state.phases else None,
    }
    if state.phases is not None:
        detail |= state.watched.detail(state.phases)
    if state.measured is not None:
        is_early = state.failure.startswith(ENDED)
        figures = state.measured.figures(state.drained, state.lost, early=is_early)
        judge = judged_early if is_early else judged
        detail["thresholds"] = [row.as_json() for row in judge(state.thresholds, figures)]
    if not reasons:
        reasons += _calm_reasons(state, detail)
    return RunVerdict(clean, tuple(reasons), detail)


def _load_reasons(state: RunState) -> list[str]:
    if state.failure:
        return [_sentence(state.failure)]
    load = state.load_finished
    if load is None:
        return ["The generator did not finish the load."]
    rules = state.request.workload.validity
    reasons = []
    # Losses over UDP are a result.
    may_lose = state.request.workload.transport == "udp"
    if load.failed > rules.max_failed_records and not may_lose:
        reasons.append(f"The generator could not send {load.failed} of {load.intended} records.")
    if load.acknowledged + load.failed != load.intended:
        lost = load.intended - load.acknowledged - load.failed
        reasons.append(
            f"{lost} intended records are neither acknowledged nor failed; see generator.log."
        )
    delay_us = quantile(state.send_delays_us, 0.99)
    if delay_us is not None and delay_us > rules.max_send_delay_p99_ms * 1000:
        reasons.append(
            f"The generator was late: p99 send delay {delay_us / 1000:.1f} ms, "
            f"allowed {rules.max_send_delay_p99_ms:g} ms."
        )
    return reasons


def _judging_reasons(state: RunState) -> list[str]:
    if state.failure or state.load_finished is None:
        return []
    if state.drained is None:
        return ["The evaluator did not give every expected output a verdict in time."]
    reasons = []
    for pipeline, stages in sorted(state.drained.verdicts.items()):
        silent = [stage for stage in stages if not state.latencies[pipeline, stage]]
        if silent:
            reasons.append(f"{pipeline} published no measured output of {', '.join(silent)}.")
    forgotten = state.drained.came_forgotten
    if forgotten:
        reasons.append(
            f"{forgotten} outputs arrived after the evaluator evicted their inputs from memory, "
            "so their latencies are unknown."
        )
    if state.drained.not_handed:
        reasons.append(
            f"It is unknown when {state.drained.not_handed} outputs had their inputs: these did not"
            " pass through the proxy of their pipeline."
        )
    reasons += [
        f"The proxy of {pipeline} ended and was started again, so it is unknown when it was handed"
        " some of its inputs."
        for pipeline in sorted(state.proxies_ended)
    ]
    # Behind sockets a result may be appended before its record, which was sent before it.
    negative = _unexplained(state.negative, state.drained.verdicts)
    if negative and state.request.socket_pipeline is None:
        reasons.append(
            f"{negative} latencies are negative: the broker's clock stepped back "
            "or outputs were published before their inputs."
        )
    return [*reasons, *_environment_reasons(state)]


def _unexplained(
    negative: Mapping[tuple[str, str], int], verdicts: Mapping[str, Mapping[str, Mapping[str, int]]]
) -> int:
    """How many negative latencies, by pipeline and stage, are not those of wrong outputs: one that
    lacks a record which came too late for it was published before that record."""
    return sum(
        max(0, count - verdicts.get(pipeline, {}).get(stage, {}).get("wrong", 0))
        for (pipeline, stage), count in negative.items()
    )


def _environment_reasons(state: RunState) -> list[str]:
    rules = state.request.workload.validity
    reasons: list[str] = []
    allowed_ms, lag_ms = rules.max_evaluator_lag_ms, state.largest_lag_ms
    if allowed_ms is not None:
        if lag_ms is None:
            reasons.append("It is unknown how far the evaluation was behind.")
        elif lag_ms > allowed_ms:
            reasons.append(f"The evaluation was {lag_ms} ms behind, allowed {allowed_ms} ms.")
    shares = (rules.max_steal_share, rules.max_others_share)
    if not state.machine_s and any(share is not None for share in shares):
        reasons.append("The CPU time of the machine is unknown.")
    machine_s = state.machine_s or 1.0
    stolen = state.stolen_s / machine_s
    if rules.max_steal_share is not None and stolen > rules.max_steal_share:
        reasons.append(f"CPU steal was {stolen:.0%}, allowed {rules.max_steal_share:.0%}.")
    # If the collector does not see the stack, its processes would count as others.
    others = (state.busy_s - state.own_s) / machine_s if state.sees_the_stack else 0.0
    if rules.max_others_share is not None and others > rules.max_others_share:
        reasons.append(
            f"Processes outside the stack used {others:.0%} of the CPU time, "
            f"allowed {rules.max_others_share:.0%}."
        )
    return reasons


def _calm_reasons(state: RunState, detail: dict[str, Any]) -> list[str]:
    """Why a run that had to be steady and undisturbed was not."""
    reasons, rules = [], state.request.workload.validity
    warm_up, late = detail["warm_up"], detail.get("late", {})
    if rules.must_be_steady and not warm_up["steady"]:
        what = "; ".join(warm_up["moving"])
        is_known = warm_up["steady"] is not None
        reasons.append(
            f"Not steady in the measured phase: {what}."
            if is_known
            else "It is unknown whether the measured phase was steady."
        )
    if rules.must_be_undisturbed and detail.get("disturbed") is not False:
        reasons.append(late.get("said") or "It is unknown whether the run was disturbed.")
    elif rules.must_be_undisturbed and not state.sees_the_stack:
        reasons.append("It is unknown whether other processes used the machine.")
    return reasons


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else text + "."
