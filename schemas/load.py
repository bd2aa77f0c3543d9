"""The load of a workload: when records are due.

Shapes have names in TOML; `sequence` and `sum` combine others:

    [load]
    shape = "sequence"
    parts = [
        { shape = "ramp", from_rate_per_second = 100, rate_per_second = 1000, for_s = 30 },
        { shape = "constant", rate_per_second = 1000 },
    ]

Every shape is exact: the records due in any interval are the integral of its rate over it.
"""

from typing import Literal

from pydantic import Field, model_validator

from schemas.model import Model

ShapeName = Literal[
    "constant",
    "ramp",
    "steps",
    "spike",
    "sine",
    "fluctuating",
    "single_burst",
    "periodic_burst",
    "replay",
    "sequence",
    "sum",
]
MAX_RATE_PER_SECOND = 10_000_000
MAX_SECONDS = 31_536_000
MAX_PARTS = 100

# Required and optional parameters of a shape.
NEEDS: dict[str, tuple[str, ...]] = {
    "constant": ("rate_per_second",),
    "ramp": ("rate_per_second", "for_s"),
    "steps": ("rates_per_second", "step_s"),
    "spike": ("rate_per_second", "peak_rate_per_second", "at_s", "peak_s"),
    "sine": ("rate_per_second", "amplitude_per_second", "period_s"),
    "fluctuating": ("rate_per_second", "period_s"),
    "single_burst": ("rate_per_second", "burst_records"),
    "periodic_burst": ("rate_per_second", "burst_records", "period_s"),
    "replay": (),
    "sequence": ("parts",),
    "sum": ("parts",),
}
_TAKES: dict[str, tuple[str, ...]] = {
    "ramp": ("from_rate_per_second",),
    "fluctuating": ("low_rate_per_second",),
    "single_burst": ("burst_ms",),
    "periodic_burst": ("burst_ms",),
    "replay": ("speed",),
}


class Load(Model):
    """When records are due.

    constant: `rate_per_second`, evenly spaced.
    ramp: from `from_rate_per_second` to `rate_per_second`, linear over `for_s`, then constant.
    steps: each of `rates_per_second` for `step_s`; the last one continues.
    spike: `rate_per_second`, but `peak_rate_per_second` for `peak_s` from `at_s` on.
    sine: `rate_per_second` ± `amplitude_per_second`, with a period of `period_s`.
    fluctuating: high, low, high, low …: `rate_per_second` and `low_rate_per_second` (by default a
    third of it, the proportions of Karimov et al. 2018) for `period_s` each.
    single_burst: `burst_records` within the first `burst_ms`, on top of `rate_per_second`.
    periodic_burst: the same every `period_s`, the first one after `period_s`.
    replay: at the recorded times of the content, `speed` times as fast.
    sequence: `parts` one after another, each for its `for_s`; the last one may omit it and then
    continues. sum: `parts` at the same time. A part is any shape except a replay, or a sequence or
    sum that contains one.

    `for_s` of a part of a sequence is its duration; for a ramp it is both.
    """

    shape: ShapeName = "constant"
    rate_per_second: float = Field(0, ge=0, le=MAX_RATE_PER_SECOND)
    from_rate_per_second: float = Field(0, ge=0, le=MAX_RATE_PER_SECOND)
    low_rate_per_second: float | None = Field(None, ge=0, le=MAX_RATE_PER_SECOND)
    peak_rate_per_second: float = Field(0, ge=0, le=MAX_RATE_PER_SECOND)
    amplitude_per_second: float = Field(0, ge=0, le=MAX_RATE_PER_SECOND)
    rates_per_second: tuple[float, ...] = Field((), max_length=MAX_PARTS)
    for_s: float = Field(0, ge=0, le=MAX_SECONDS)
    step_s: float = Field(0, ge=0, le=MAX_SECONDS)
    at_s: float = Field(0, ge=0, le=MAX_SECONDS)
    peak_s: float = Field(0, ge=0, le=MAX_SECONDS)
    period_s: float = Field(0, ge=0, le=MAX_SECONDS)
    burst_records: int = Field(0, ge=0, le=100_000_000)
    burst_ms: int = Field(175, ge=1, le=60_000)
    speed: float = Field(60, ge=0.001, le=1_000_000)
    parts: tuple["Load", ...] = Field((), max_length=MAX_PARTS)

    @model_validator(mode="after")
    def _whole(self) -> "Load":
        needs = NEEDS[self.shape]
        takes = (*needs, *_TAKES.get(self.shape, ()), "shape", "for_s")
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in needs and not value and not (name == "at_s"):
                raise ValueError(f"the shape {self.shape} needs {name}")
            if name not in takes and value != field.default:
                raise ValueError(
                    f"the shape {self.shape} does not take {name}; it takes: "
                    f"{', '.join(one for one in takes if one != 'shape')}"
                )
        self._check_values()
        for number, part in enumerate(self.parts, start=1):
            self._check_part(part, last=number == len(self.parts))
        return self

    def _check_values(self) -> None:
        if self.shape == "sine" and self.amplitude_per_second > self.rate_per_second:
            raise ValueError("amplitude_per_second must not exceed rate_per_second")
        if self.shape == "periodic_burst" and self.burst_ms > self.period_s * 1000:
            raise ValueError("burst_ms must not be longer than period_s")
        if any(not 0 <= rate <= MAX_RATE_PER_SECOND for rate in self.rates_per_second):
            raise ValueError(f"rates_per_second must be from 0 to {MAX_RATE_PER_SECOND}")
        if self.shape == "steps" and not any(self.rates_per_second):
            raise ValueError("one of rates_per_second must be above 0")

    def _check_part(self, part: "Load", last: bool) -> None:
        if part.shape == "replay":
            raise ValueError(f"a replay cannot be part of a {self.shape}")
        if self.shape == "sequence" and not part.for_s and not last:
            raise ValueError("every part of a sequence but the last needs for_s")

    @property
    def peak_per_second(self) -> float:
        """The highest rate of the shape, bursts included; 0 for a replay, whose peak depends on its
        data."""
        burst = self.burst_records * 1000 / self.burst_ms
        parts = [part.peak_per_second for part in self.parts]
        combined = sum(parts) if self.shape == "sum" else max(parts, default=0.0)
        rates = (self.from_rate_per_second, self.peak_rate_per_second, *self.rates_per_second)
        base = self.rate_per_second + self.amplitude_per_second + burst
        return max(base, combined, self.low_rate_per_second or 0.0, *rates)
