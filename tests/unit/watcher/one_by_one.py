"""The rules of a watch (services/watcher/ledger.py) as a loop over single records."""

from collections import Counter

from services.watcher.records import DUPLICATE, EXACT, LATE, LOST, UNEXPECTED


class _Group:
    def __init__(self, ms):
        self.ms, self.output = ms, None


def verdicts_of(inputs, outputs, relation, counts_missing=True):
    """Number of occurrences of each (verdict, input time, output time), for pairs (identity,
    time)."""
    found = Counter()
    for name in {one for one, _ in (*inputs, *outputs)}:
        mine = sorted(ms for one, ms in inputs if one == name)
        theirs = sorted(ms for one, ms in outputs if one == name)
        found += _of_one(mine, theirs, relation, counts_missing)
    return dict(found)


def _of_one(inputs, outputs, relation, counts_missing):
    found, groups, waiting = Counter(), [], []
    steps = sorted([(ms, 0) for ms in inputs] + [(ms, 1) for ms in outputs])
    for ms, side in steps:
        if side == 0:
            group = _Group(ms)
            groups.append(group)
            early = [one for one in waiting if ms - one <= relation.deadline_ms]
            if early:
                group.output = early[0]
                waiting.remove(early[0])
                found[EXACT, ms, early[0]] += 1
            continue
        known = [one for one in groups if ms - one.ms <= relation.remember_ms]
        free = [one for one in known if one.output is None]
        hoped = [one for one in free if ms - one.ms <= relation.give_up_ms]
        if hoped or free:
            group = (hoped or free)[0]
            group.output = ms
            verdict = EXACT if ms - group.ms <= relation.deadline_ms else LATE
            found[verdict, group.ms, ms] += 1
        elif known:
            found[DUPLICATE, known[-1].ms, ms] += 1
        else:
            waiting.append(ms)
    for ms in waiting:
        later = [one.ms for one in groups if 0 < one.ms - ms <= relation.deadline_ms]
        verdict = DUPLICATE if later else UNEXPECTED
        found[verdict, later[0] if later else None, ms] += 1
    lost = [one.ms for one in groups if one.output is None]
    if counts_missing:
        found.update((LOST, ms, None) for ms in lost)
    return found


def windows_of(inputs, outputs, relation):
    """The same for windows: inputs are (identity, time, event time), outputs (identity, time,
    begin, end)."""
    found, known, waiting, had, often = Counter(), [], [], {}, Counter()

    def is_judged(output):
        name, ms, begin, end = output
        mine = [
            number
            for number in known
            for one, at, event in [inputs[number]]
            if one == name and begin <= event < end and ms - at <= relation.remember_ms
        ]
        if not mine:
            return False
        last = max(inputs[number][1] for number in mine)
        before = had.get((name, begin, end), -1)
        if last <= before:
            found[DUPLICATE, last, ms] += 1
            return True
        found[EXACT if ms - last <= relation.deadline_ms else LATE, last, ms] += 1
        often.update(number for number in mine if inputs[number][1] > before)
        had[name, begin, end] = last
        return True

    for now in sorted({one[1] for one in (*inputs, *outputs)}):
        known += [number for number, one in enumerate(inputs) if one[1] == now]
        hoping = [one for one in waiting if now - one[1] <= relation.deadline_ms]
        in_vain = [one for one in waiting if now - one[1] > relation.deadline_ms]
        coming = [one for one in outputs if one[1] == now]
        waiting = in_vain + [one for one in hoping + coming if not is_judged(one)]
    found.update((UNEXPECTED, None, ms) for _, ms, _, _ in waiting)
    lost = [one for number, one in enumerate(inputs) if often[number] < relation.windows]
    found.update((LOST, ms, None) for _, ms, _ in lost)
    return dict(found)
