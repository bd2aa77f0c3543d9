"""Resource usage of each service between two samples."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.collector.accounting import Accountant, Counters, Owner, OwnerUsage, ProcessSample

pytestmark = pytest.mark.unit

BEGAN_S = 1000.0
SPARK = Owner("runner")
DRIVER = Owner("runner", "p1")


def sample(pid, cpu_s, ended_s=0.0, born_s=900.0, parent=None, owner=SPARK):
    return ProcessSample((pid, born_s), parent, owner, cpu_s, ended_s, memory_bytes=10, threads=2)


def cpu(accountant, *samples):
    usage = accountant.account(samples)
    return {owner: pytest.approx(used.cpu_s) for owner, used in usage.items()}


def test_the_first_sample_of_an_older_process_is_its_mark():
    accountant = Accountant(BEGAN_S)
    assert accountant.account([sample(1, cpu_s=50)]) == {SPARK: OwnerUsage(0.0, 10, 1, 2)}
    assert accountant.account([sample(1, cpu_s=50.5)]) == {SPARK: OwnerUsage(0.5, 10, 1, 2)}


def test_processes_of_an_owner_are_summed_and_pipelines_kept_apart():
    accountant = Accountant(BEGAN_S)
    accountant.account([sample(1, 1.0), sample(2, 1.0), sample(3, 1.0, owner=DRIVER)])
    usage = accountant.account([sample(1, 1.25), sample(2, 1.5), sample(3, 3.0, owner=DRIVER)])
    assert usage == {SPARK: OwnerUsage(0.75, 20, 2, 4), DRIVER: OwnerUsage(2.0, 10, 1, 2)}


@given(
    st.lists(
        st.tuples(st.sampled_from(["java A", "python b", "python b 2"]), st.integers(0, 9)),
        max_size=9,
    )
)
def test_the_processes_of_a_pipeline_add_up_to_it(used):
    accountant = Accountant(BEGAN_S)
    for factor in (0, 1):
        usage = accountant.account(
            replace(sample(pid, factor * cpu_s, owner=DRIVER), name=name)
            for pid, (name, cpu_s) in enumerate(used)
        ).get(DRIVER, OwnerUsage())
    by_process = {name: sum(s for n, s in used if n == name) for name, _s in used}
    assert usage.cpu_s_by_process == by_process
    assert sum(by_process.values()) == usage.cpu_s


def test_a_process_of_a_service_has_no_name():
    assert Accountant(BEGAN_S).account([sample(1, 1.0)])[SPARK].cpu_s_by_process == {}


def test_a_process_born_under_our_eyes_counts_whole():
    accountant = Accountant(BEGAN_S)
    cpu(accountant, sample(1, 1.0))
    assert cpu(accountant, sample(1, 1.0), sample(2, 0.75, born_s=1000.5)) == {SPARK: 0.75}


def test_the_last_moments_of_a_child_count_when_its_parent_has_waited_for_it():
    accountant = Accountant(BEGAN_S)
    parent = (1, 900.0)
    cpu(accountant, sample(1, 1.0), sample(2, 5.0, parent=parent))
    # The child used 0.25 more and exited: 5.25 in total, of which 5 were known.
    assert cpu(accountant, sample(1, 1.0, ended_s=5.25)) == {SPARK: 0.25}


def test_a_child_that_ended_but_was_not_waited_for_is_not_counted_again_later():
    accountant = Accountant(BEGAN_S)
    parent = (1, 900.0)
    cpu(accountant, sample(1, 1.0), sample(2, 5.0, parent=parent))
    assert cpu(accountant, sample(1, 1.0)) == {SPARK: 0.0}
    assert cpu(accountant, sample(1, 1.0, ended_s=5.25)) == {SPARK: 0.25}
    assert cpu(accountant, sample(1, 1.0, ended_s=6.0)) == {SPARK: 0.75}


def test_a_child_that_somebody_else_waited_for_hides_no_later_ones():
    accountant = Accountant(BEGAN_S)
    parent = (1, 900.0)
    cpu(accountant, sample(1, 1.0), sample(2, 5.0, parent=parent))
    for _ in range(3):
        assert cpu(accountant, sample(1, 1.0)) == {SPARK: 0.0}
    assert cpu(accountant, sample(1, 1.0, ended_s=0.5)) == {SPARK: 0.5}


def test_a_debt_that_is_paid_in_part_gets_no_longer_time_by_it():
    accountant = Accountant(BEGAN_S)
    parent = (1, 900.0)
    cpu(accountant, sample(1, 1.0), sample(2, 5.0, parent=parent))
    found = [cpu(accountant, sample(1, 1.0, ended_s=0.5 * turn))[SPARK] for turn in range(1, 6)]
    assert found == [0.0, 0.0, 0.0, 0.5, 0.5]


def test_a_grandchild_that_ended_with_its_parent_is_not_counted_twice():
    accountant = Accountant(BEGAN_S)
    root, child = (1, 900.0), (2, 900.0)
    cpu(accountant, sample(1, 1.0), sample(2, 2.0, parent=root), sample(3, 4.0, parent=child))
    assert cpu(accountant, sample(1, 1.0, ended_s=6.0)) == {SPARK: 0.0}


def test_a_process_too_short_for_any_sample_counts():
    accountant = Accountant(BEGAN_S)
    cpu(accountant, sample(1, 1.0))
    assert cpu(accountant, sample(1, 1.0, ended_s=0.5)) == {SPARK: 0.5}


def test_another_process_with_the_same_id_is_another_process():
    accountant = Accountant(BEGAN_S)
    cpu(accountant, sample(1, 50.0))
    assert cpu(accountant, sample(1, 0.5, born_s=1001.0)) == {SPARK: 0.5}


def test_a_counter_that_goes_back_gives_nothing():
    accountant = Accountant(BEGAN_S)
    cpu(accountant, sample(1, 2.0, ended_s=1.0))
    assert cpu(accountant, sample(1, 1.5, ended_s=0.5)) == {SPARK: 0.0}


steps = st.lists(
    st.lists(st.tuples(st.sampled_from(["work", "fork", "exit"]), st.integers(0, 9)), max_size=6),
    min_size=1,
    max_size=8,
)


@given(steps)
def test_everything_that_a_tree_of_processes_used_is_counted_once(rounds):
    own, ended, parents = {1: 0}, {1: 0}, {1: None}
    accountant = Accountant(BEGAN_S)
    accountant.account([sample(1, 0, 0)])
    used = counted = 0
    next_pid = 2
    for actions in rounds:
        for action, number in actions:
            pid = sorted(own)[number % len(own)]
            if action == "work":
                own[pid] += number
                used += number
            elif action == "fork":
                own[next_pid], ended[next_pid], parents[next_pid] = 0, 0, pid
                next_pid += 1
            elif pid != 1 and pid not in parents.values():
                ended[parents[pid]] += own.pop(pid) + ended.pop(pid)
                del parents[pid]
        samples = [
            sample(
                pid,
                own[pid],
                ended[pid],
                born_s=900.0 + 200 * (pid != 1),
                parent=None if pid == 1 else (parents[pid], 900.0 + 200 * (parents[pid] != 1)),
            )
            for pid in own
        ]
        counted += sum(usage.cpu_s for usage in accountant.account(samples).values())
    assert counted == used


def test_the_network_of_a_pipeline_is_that_of_its_processes():
    accountant = Accountant(BEGAN_S)

    def samples(received: int, sent: int) -> list[ProcessSample]:
        counters = Counters(received_bytes=received, sent_bytes=sent)
        two = (replace(sample(pid, 1.0), counters=counters) for pid in (1, 2))
        return [replace(each, name=name) for each, name in zip(two, ("java A", "b"), strict=True)]

    accountant.account(samples(100, 10))
    usage = accountant.account(samples(700, 15))[SPARK]
    assert usage.received_by_process == {"java A": 600, "b": 600}
    assert usage.sent_by_process == {"java A": 5, "b": 5}
    assert (usage.counters.received_bytes, usage.counters.sent_bytes) == (1_200, 10)
