"""A queue in front of a server of known capacity, which a search must find."""

import random
from dataclasses import dataclass, replace

from schemas.observation import Second, StageObserved, StepObservation
from schemas.search import Search
from services.conductor.search.bisection import Done, SustainableRate, next_step, search_result
from services.conductor.search.policies import judged

TICKS = 10  # per second


@dataclass(frozen=True)
class System:
    """capacity_per_second: at the start of a step; leak: share of it lost per second;
    capacity_noise: uniform, per second; latency_noise_ms: uniform, per second of output.
    idle_share: of its cores, used without load; they limit its capacity."""

    capacity_per_second: float
    base_latency_s: float = 0.2
    leak: float = 0.0
    capacity_noise: float = 0.0
    latency_noise_ms: float = 0.0
    max_queue_s: float = 40.0
    idle_share: float | None = None

    def capacity_at(self, second: float) -> float:
        """Records per second, without the noise."""
        return self.capacity_per_second * max(0.0, 1 - self.leak * second)

    def observe(self, rate: float, warm_up_s: int, measure_s: int, seed: int) -> StepObservation:
        """One step of the load, as observed on the bus."""
        chance = random.Random(seed)
        end_s = warm_up_s + measure_s
        out, tick, medians, queues, factor = 0.0, 0, {}, {}, 1.0
        while out < rate * end_s - 1e-6 and tick < TICKS * (end_s + self.max_queue_s):
            now_s = tick / TICKS
            if tick % TICKS == 0:
                factor = 1 + chance.uniform(-self.capacity_noise, self.capacity_noise)
            arrived = rate * max(0.0, now_s + 1 / TICKS - self.base_latency_s)
            out = min(arrived, out + self.capacity_at(now_s) * factor / TICKS)
            tick += 1
            second = tick // TICKS - warm_up_s
            if tick % TICKS == TICKS // 2 and rate * warm_up_s < out:
                noise_ms = chance.uniform(-self.latency_noise_ms, self.latency_noise_ms)
                medians[second] = max(1.0, 1000 * (tick / TICKS - out / rate) + noise_ms)
            if tick % TICKS == 0 and 0 < second <= measure_s:
                queues[second - 1] = rate * (second + warm_up_s) - out
        seconds = tuple(Second(at, round(rate), queue) for at, queue in sorted(queues.items()))
        missing = max(0, round(rate * end_s - out))
        drained_s = tick / TICKS - end_s
        stage = StageObserved("parse", medians, seconds, drained_s, missing)
        return StepObservation(
            (stage,), intended=round(rate * end_s), cpu_share=self._cpu_share(rate)
        )

    def _cpu_share(self, rate: float) -> float | None:
        if self.idle_share is None:
            return None
        busy = min(1.0, rate / self.capacity_per_second)
        return self.idle_share + (1 - self.idle_share) * busy


def search_on(system: System, search: Search, guess: float, seed: int = 0) -> SustainableRate:
    """A complete search; every step starts with the system in its initial state."""
    steps: list[Done] = []
    while planned := next_step(steps, search, guess):
        seconds = search.confirm_s if planned.long else search.step_s
        observed = system.observe(
            planned.rate_per_second, search.step_warm_up_s, seconds, seed + len(steps)
        )
        judgement = judged(observed, search, final=planned.long)
        rate, long = planned.rate_per_second, planned.long
        done = Done(rate, long, judgement.refusals, judgement.undecided)
        processed, share = judgement.processed, observed.cpu_share
        steps.append(replace(done, processed=processed, cpu_share=share))
    return search_result(steps, search)
