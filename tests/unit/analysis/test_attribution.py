"""The cause of late seconds, from evidence with literal values."""

from dataclasses import replace

import pytest

from analysis.lateness import Evidence, attribute, late_above_ms, limited_by
from analysis.room import Use

pytestmark = pytest.mark.unit

PLACE = ("spark", "parse")
SECONDS = range(1000, 1030)
CALM = {at: 10.0 + at % 3 for at in SECONDS}  # level 11, spread 1

SLOW_IN_TWO_OF_FIVE = [
    *(430.0, 434.0, 25.0, 37.0, 13.0, 408.0, 410.0, 67.0, 12.0, 10.0, 476.0, 416.0, 33.0),
    *(9.0, 85.0, 455.0, 463.0, 72.0, 22.0, 20.0, 472.0, 431.0, 20.0, 8.0, 5.0),
]


def use(cpu_s: float, waited_s: float | None = 0.0, **more: float) -> Use:
    """Resources that a part used in a second."""
    return Use(cpu_s, 1.0, waited_s, **more)


USES = {
    "generator": dict.fromkeys(SECONDS, use(0.1)),
    "broker": dict.fromkeys(SECONDS, use(0.2)),
    "spark": dict.fromkeys(SECONDS, use(0.4)),
    "evaluator": dict.fromkeys(SECONDS, use(0.1)),
    "machine": dict.fromkeys(SECONDS, use(0.9, None, steal_s=0.0, pressure_s=0.1)),
}


def evidence(**differently: object) -> Evidence:
    """An undisturbed run: 30 s, p95 of 10 to 12 ms, of which 8 to 10 from the input."""
    calm = Evidence(
        event_time_ms={PLACE: CALM},
        latest_ms={PLACE: {at: value - 2 for at, value in CALM.items()}},
        send_ms=dict.fromkeys(SECONDS, 1.0),
        allowed_send_ms=1_000,
        uses=USES,
        cores=2,
    )
    return replace(calm, **differently)  # type: ignore[arg-type]


def late(event_ms: float, latest_ms: float, *seconds: int, **differently: object) -> Evidence:
    """The same with other latencies in these seconds."""
    calm = evidence()
    return evidence(
        event_time_ms={PLACE: CALM | dict.fromkeys(seconds, event_ms)},
        latest_ms={PLACE: {**calm.latest_ms[PLACE], **dict.fromkeys(seconds, latest_ms)}},
        **differently,
    )


def with_use(part: str, use_of_it: Use, *seconds: int) -> dict[str, dict[int, Use]]:
    """USES with another value for one part."""
    return {**USES, part: {**USES[part], **dict.fromkeys(seconds, use_of_it)}}


def test_a_run_without_late_seconds_is_undisturbed() -> None:
    found = attribute(evidence())
    assert (found.disturbed, dict(found.late)) == (False, {})
    assert found.said == "Undisturbed: none of 30 seconds was late."


def test_time_between_input_and_output_is_the_pipelines_and_disturbs_nothing() -> None:
    found = attribute(late(400, 398, 1010, 1011, 1012))
    assert dict(found.late) == dict.fromkeys((1010, 1011, 1012), "pipeline")
    assert found.disturbed is False
    assert found.said == "Undisturbed: 3 of 30 seconds were late: 3 by the pipeline."


def test_time_between_scheduled_and_sent_is_the_generators() -> None:
    sent = dict.fromkeys(SECONDS, 1.0) | {1010: 390.0, 1011: 390.0}
    found = attribute(late(400, 9, 1010, 1011, send_ms=sent))
    assert dict(found.late) == {1010: "generator", 1011: "generator"}
    assert (found.disturbed, found.disturbed_by) == (True, ("generator",))


def test_the_time_in_which_the_clients_queue_was_full_is_the_brokers() -> None:
    sent = dict.fromkeys(SECONDS, 1.0) | {1010: 390.0, 1011: 390.0}
    full = {1010: 0.9, 1011: 0.2}
    found = attribute(late(400, 9, 1010, send_ms=sent, queue_full_share=full))
    assert dict(found.late) == {1010: "broker"}
    found = attribute(late(400, 9, 1011, send_ms=sent | {1010: 1.0}, queue_full_share=full))
    assert dict(found.late) == {1011: "generator"}
    whole = late(5_000, 9, *SECONDS, send_ms=dict.fromkeys(SECONDS, 4_900.0))
    assert limited_by(whole) == "generator"
    whole = replace(whole, queue_full_share=dict.fromkeys(SECONDS, 0.9))
    assert limited_by(whole) == "broker"


def test_a_client_that_uses_a_core_fills_its_queue_itself() -> None:
    full = dict.fromkeys(SECONDS, 0.9)
    whole = late(5_000, 9, *SECONDS, send_ms=dict.fromkeys(SECONDS, 4_900.0), queue_full_share=full)
    for cores, part in ((0.8, "broker"), (1.0, "generator")):
        uses = {**whole.uses, "generator": dict.fromkeys(SECONDS, use(cores, None))}
        assert limited_by(replace(whole, uses=uses)) == part


def test_time_between_sent_and_appended_is_the_brokers() -> None:
    found = attribute(late(900, 300, 1010, 1011))
    assert dict(found.late) == {1010: "broker", 1011: "broker"}
    assert found.said == "Disturbed: 2 of 30 seconds were late: 2 by the broker."


def test_a_broker_that_stands_still_is_its_own_fault_on_a_busy_machine_too() -> None:
    """A process that is not runnable does not wait in a run queue."""
    uses = with_use("machine", use(1.9, None), 1010, 1011)
    assert attribute(late(900, 300, 1010, 1011, uses=uses)).by["broker"] == 2


@pytest.mark.parametrize(
    ("event_ms", "latest_ms", "part"), [(400, 398, "spark"), (900, 300, "broker")]
)
def test_who_waits_for_a_core_that_others_have_is_late_by_the_machine(
    event_ms: float, latest_ms: float, part: str
) -> None:
    uses = with_use("machine", use(1.9, None), 1009, 1010, 1011)
    uses[part] = uses[part] | dict.fromkeys((1009, 1010, 1011), use(0.2, 0.3))
    found = attribute(late(event_ms, latest_ms, 1010, 1011, uses=uses))
    assert dict(found.late) == {1010: "machine", 1011: "machine"}
    assert found.disturbed_by == ("machine",)


def test_a_wait_that_is_shorter_than_the_second_is_late_or_usual_explains_nothing() -> None:
    uses = with_use("machine", use(1.9, None), 1009, 1010, 1011)
    uses["spark"] = uses["spark"] | dict.fromkeys((1009, 1010, 1011), use(0.05, 0.03))
    assert attribute(late(2_400, 2_398, 1010, 1011, uses=uses)).by["pipeline"] == 2
    busy = {"spark": dict.fromkeys(SECONDS, use(0.2, 0.3))}
    assert attribute(late(400, 398, 1010, 1011, uses=uses | busy)).by["pipeline"] == 2


def test_what_did_nothing_for_a_second_did_not_wait_for_a_core() -> None:
    """Stopped for a second; before and after it waited, because other processes had the cores."""
    uses = with_use("machine", use(1.9, None), 1009, 1010, 1011)
    uses["broker"] = uses["broker"] | {
        1009: use(0.2, 0.3),
        1010: use(0.0, 0.0),
        1011: use(0.3, 0.4),
    }
    assert attribute(late(900, 300, 1010, 1011, uses=uses)).by["broker"] == 2


def test_who_waits_for_a_core_that_its_own_threads_have_is_late_by_itself() -> None:
    uses = with_use("spark", use(1.5, 1.5), 1010, 1011)
    uses["machine"] = uses["machine"] | dict.fromkeys((1010, 1011), use(2.0, None, pressure_s=1.0))
    assert attribute(late(400, 398, 1010, 1011, uses=uses)).by["pipeline"] == 2


def test_a_host_that_takes_cores_away_is_the_machine() -> None:
    stolen = use(0.9, None, steal_s=0.8)
    uses = with_use("machine", stolen, 1009, 1010, 1011)
    uses["spark"] = uses["spark"] | dict.fromkeys((1009, 1010, 1011), use(0.4, 0.4))
    assert attribute(late(400, 398, 1010, 1011, uses=uses)).by["machine"] == 2


def test_an_evaluator_that_catches_up_is_named() -> None:
    behind = dict.fromkeys((1009, 1010), 5_000.0)
    uses = with_use("evaluator", use(0.9), 1009, 1010, 1011)
    found = attribute(late(400, 398, 1010, 1011, behind_ms=behind, uses=uses))
    assert dict(found.late) == {1010: "evaluator", 1011: "evaluator"}


def test_an_evaluator_that_only_waits_for_outputs_is_not_named() -> None:
    behind = dict.fromkeys((1009, 1010), 5_000.0)
    found = attribute(late(400, 398, 1010, 1011, behind_ms=behind))
    assert dict(found.late) == {1010: "pipeline", 1011: "pipeline"}


def test_a_broker_that_stood_still_is_named_for_outputs_of_inputs_before() -> None:
    uses = with_use("broker", use(0.0, 0.0), 1009)
    found = attribute(late(2_400, 2_398, 1010, uses=uses))
    assert dict(found.late) == {1010: "broker"}


def test_late_seconds_do_not_hide_each_other_until_they_are_half_of_all() -> None:
    seconds = dict(enumerate(SLOW_IN_TWO_OF_FIVE, SECONDS.start))
    latest = {at: value - 2 for at, value in seconds.items()}
    found = attribute(evidence(event_time_ms={PLACE: seconds}, latest_ms={PLACE: latest}))
    assert found.said == "Undisturbed: 10 of 25 seconds were late: 10 by the pipeline."


def test_what_piled_up_behind_a_late_second_is_of_its_cause() -> None:
    """Processed within three seconds; seconds that are late afterwards, or become later, are caused
    by the pipeline."""
    calm = evidence()
    values = {
        1010: (900.0, 300.0),
        1011: (800.0, 798.0),
        1012: (500.0, 498.0),
        1013: (700.0, 698.0),
    }
    found = attribute(
        evidence(
            event_time_ms={PLACE: CALM | {at: event for at, (event, _) in values.items()}},
            latest_ms={
                PLACE: {**calm.latest_ms[PLACE], **{at: v for at, (_, v) in values.items()}}
            },
        )
    )
    assert dict(found.late)[1010] == "broker"
    assert dict(found.late)[1011] == "broker"
    assert dict(found.late)[1013] == "pipeline"


def test_a_generator_that_sends_later_than_allowed_is_late_from_begin_to_end() -> None:
    """No second of such a run is above its level; the workload's own limit decides."""
    slow = dict.fromkeys(SECONDS, 5_000.0)
    found = attribute(
        evidence(
            event_time_ms={PLACE: slow},
            latest_ms={PLACE: dict.fromkeys(SECONDS, 10.0)},
            send_ms=dict.fromkeys(range(995, 1030), 4990.0),
        )
    )
    assert len(found.late) == 30
    assert found.disturbed_by == ("generator",)


def test_a_run_beside_which_others_took_cores_is_disturbed_although_nothing_was_late() -> None:
    uses = with_use("machine", use(1.3, None), *SECONDS)
    found = attribute(evidence(uses=uses))
    assert found.disturbed_by == ("machine",)
    assert found.said == (
        "Disturbed: none of 30 seconds was late; processes outside the run used 0.50 of 2 cores."
    )
    assert attribute(evidence(uses=uses, others_allowed=0.3)).disturbed is False


def test_seconds_of_silence_before_a_late_one_are_late_with_it() -> None:
    calm = evidence()
    silent = (1010, 1011)
    values = {at: value for at, value in CALM.items() if at not in silent} | {1012: 2_900.0}
    latest = {at: value - 2 for at, value in values.items()} | {1012: 90.0}
    found = attribute(replace(calm, event_time_ms={PLACE: values}, latest_ms={PLACE: latest}))
    assert dict(found.late) == {1010: "broker", 1011: "broker", 1012: "broker"}
    assert found.said == "Disturbed: 3 of 30 seconds were late: 3 by the broker."


def test_silence_between_the_triggers_of_a_pipeline_is_not_late() -> None:
    """Outputs every tenth second; one is late, and one comes five seconds after it was due."""
    seconds = range(1000, 1300, 10)
    values = dict.fromkeys(seconds, 10.0) | {1100: 900.0}
    latest = dict.fromkeys(seconds, 8.0) | {1100: 300.0}
    found = attribute(evidence(event_time_ms={PLACE: values}, latest_ms={PLACE: latest}))
    assert (dict(found.late), found.disturbed) == ({1100: "broker"}, False)
    later = {at + 5 if at == 1100 else at: value for at, value in values.items()}
    latest = {at + 5 if at == 1100 else at: value for at, value in latest.items()}
    found = attribute(evidence(event_time_ms={PLACE: later}, latest_ms={PLACE: latest}))
    assert dict(found.late) == dict.fromkeys(range(1100, 1106), "broker")


def test_a_host_that_takes_cores_away_disturbs_a_run_without_late_seconds_and_is_named() -> None:
    uses = with_use("machine", use(0.9, None, steal_s=0.16), *SECONDS)
    found = attribute(evidence(uses=uses))
    assert found.disturbed_by == ("machine",)
    assert found.said == ("Disturbed: none of 30 seconds was late; CPU steal was 8%.")


def test_one_late_second_is_named_and_does_not_make_a_run_disturbed() -> None:
    found = attribute(late(900, 300, 1010))
    assert (found.by["broker"], found.disturbed) == (1, False)


def test_too_few_seconds_say_nothing() -> None:
    assert attribute(Evidence({PLACE: {1: 5.0}}, {PLACE: {1: 4.0}})).disturbed is None


@pytest.mark.parametrize(
    ("values", "above"),
    [
        ([10.0] * 8, 30.0),  # 20 ms above a small level
        ([1000.0] * 8, 1500.0),  # half of a large one
        ([0.0, 100.0] * 8, 50 + 6 * 1.4826 * 50 * 4 / 3),  # six deviations of a restless one
        # Two seconds in five are late: recorded, with a pipeline that is 400 ms slower in them.
        (SLOW_IN_TWO_OF_FIVE, 36 + 6 * 1.4826 * 31 * 29 / 24),
        ([10.0] * 7, None),
    ],
)
def test_the_level_above_which_a_second_is_late(values: list[float], above: float | None) -> None:
    assert late_above_ms(values) == (None if above is None else pytest.approx(above))


@pytest.mark.parametrize(
    ("event_ms", "latest_ms", "send_ms", "limit"),
    [
        (5_000.0, 10.0, 4_990.0, "generator"),
        (5_000.0, 10.0, 5.0, "broker"),
        (5_000.0, 4_900.0, 5.0, "pipeline"),
    ],
)
def test_what_limits_a_run_is_where_its_time_goes(
    event_ms: float, latest_ms: float, send_ms: float, limit: str
) -> None:
    found = limited_by(
        evidence(
            event_time_ms={PLACE: dict.fromkeys(SECONDS, event_ms)},
            latest_ms={PLACE: dict.fromkeys(SECONDS, latest_ms)},
            send_ms=dict.fromkeys(SECONDS, send_ms),
        )
    )
    assert found == limit


def test_a_generator_that_stalls_in_a_few_seconds_limits_a_run_that_it_alone_spoilt() -> None:
    stalled = [SECONDS[at] for at in (20, 26)]
    send_ms = dict.fromkeys(SECONDS, 1.0) | dict.fromkeys(stalled, 1_500.0)
    seen = late(1_510.0, 10.0, *stalled, send_ms=send_ms)
    assert limited_by(seen) == "pipeline"  # most seconds are normal
    assert limited_by(seen, by_input_alone=True) == "generator"


def test_a_broker_that_has_nothing_to_do_after_the_load_does_not_stand_still() -> None:
    after = SECONDS[20:]
    uses = with_use("broker", use(0.01), *after)
    slow = {PLACE: dict.fromkeys(SECONDS, 8_000.0)}
    seen = evidence(event_time_ms=slow, latest_ms=slow, uses=uses)
    assert limited_by(seen) == "broker"
    assert limited_by(replace(seen, load_end_s=after[0])) == "pipeline"


def test_a_full_machine_limits_a_run_whose_pipeline_has_little_of_it() -> None:
    uses = {
        "generator": dict.fromkeys(SECONDS, use(0.6, 0.4)),
        "broker": dict.fromkeys(SECONDS, use(0.7, 0.5)),
        "spark": dict.fromkeys(SECONDS, use(0.4, 0.4)),
        "machine": dict.fromkeys(SECONDS, use(1.9, None, pressure_s=0.95)),
    }
    slow = {PLACE: dict.fromkeys(SECONDS, 5_000.0)}
    assert limited_by(evidence(event_time_ms=slow, latest_ms=slow, uses=uses)) == "machine"


def test_nothing_limits_what_was_not_seen() -> None:
    assert limited_by(Evidence({}, {})) == ""
