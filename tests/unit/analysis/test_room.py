"""Whether the machine had room, from evidence with literal values."""

import pytest

from analysis.room import Use, others_cores, room, room_sentence

pytestmark = pytest.mark.unit


def used(**cores: tuple[float, float | None]) -> dict[str, dict[int, Use]]:
    """Two seconds of parts: cores and seconds of waiting in each second."""
    return {
        part: {at: Use(cpu_s, 1.0, waited_s) for at in (1, 2)}
        for part, (cpu_s, waited_s) in cores.items()
    }


def test_shares_of_a_machine_of_two_cores() -> None:
    found = room(used(broker=(0.4, 0.1), collector=(0.1, 0.0), machine=(0.8, None)), 2)
    assert found["broker"] == {
        "cpu_cores": pytest.approx(0.4),
        "cpu_share": pytest.approx(0.2),
        "waiting_share": pytest.approx(0.2),
    }
    assert list(found) == ["broker", "collector", "machine"]
    assert found["machine"]["others_cores"] == pytest.approx(0.3)
    assert (found["machine"]["saturated"], found["machine"]["waited"]) == (False, [])
    assert room_sentence(found, 2) == ""


def test_a_full_machine_is_saturated_and_names_who_waited() -> None:
    uses = used(broker=(0.6, 0.2), spark=(0.9, 0.9), collector=(0.1, 0.0), machine=(1.9, None))
    found = room(uses, 2)
    assert room_sentence(found, 2) == (
        "Saturated: 1.90 of 2 cores were in use. Share of runnable time spent "
        "waiting for a core: spark 50%."
    )


@pytest.mark.parametrize(
    ("machine", "pressure_s", "saturated"),
    [
        (0.97, 0.32, False),  # recorded: the calibration pipeline alone, no other processes
        (0.65, 0.19, False),  # recorded: the same at 100 records/s
        (1.58, 0.67, True),  # recorded: micro-batches
        (1.58, None, True),
        (0.97, None, False),
    ],
)
def test_a_part_that_waits_lacks_room_where_some_task_waits_for_half_of_the_time(
    machine: float, pressure_s: float | None, saturated: bool
) -> None:
    uses = used(broker=(0.59, 0.52), collector=(0.01, 0.0))
    uses["machine"] = {1: Use(machine, 1.0, None, 0.0, pressure_s)}
    found = room(uses, 2)
    assert found["broker"]["waiting_share"] == pytest.approx(0.47, abs=0.005)
    assert found["machine"]["saturated"] is saturated
    assert found["machine"]["waited"] == (["broker"] if saturated else [])


def test_what_a_hypervisor_takes_is_not_there() -> None:
    uses = used(broker=(0.6, 0.2), collector=(0.1, 0.0))
    uses["machine"] = {1: Use(0.7, 1.0, None, 1.2, 0.9)}
    found = room(uses, 2)["machine"]
    assert found["steal_share"] == pytest.approx(0.6)
    assert found["cpu_pressure_share"] == pytest.approx(0.9)
    assert (found["saturated"], found["waited"]) == (True, ["broker"])


def test_others_are_not_known_where_only_the_collector_sees_itself() -> None:
    assert others_cores(used(collector=(0.1, 0.0), machine=(1.5, None))) is None
    assert others_cores(used(broker=(0.1, 0.0), collector=(0.1, 0.0))) is None
    of_pipeline = {"runner": (0.1, 0.0), "sampler": (0.1, 0.0), "flink": (0.5, 0.0)}
    assert others_cores(used(machine=(1.5, None), **of_pipeline)) is None


def test_without_samples_or_cores_nothing_is_said() -> None:
    assert room({}, 2) == {}
    assert room(used(broker=(0.1, 0.0)), None) == {}
    assert room_sentence({}, None) == ""
