"""The load of a workload: when records are due. One class for each shape.

Shapes have names in TOML; `sequence` and `sum` combine others:

    [load]
    shape = "sequence"
    parts = [
        { shape = "ramp", from_rate_per_second = 100, rate_per_second = 1000, for_s = 30 },
        { shape = "constant", rate_per_second = 1000 },
    ]

Every shape is exact: the records due in any interval are the integral of its rate over it, its
`curve` (schemas/curves.py). A new shape is a class here, and part of SHAPES.
"""

import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, TypeAdapter, field_validator, model_validator

from schemas.curves import (
    Burst,
    Chain,
    Curve,
    Integral,
    Ramp,
    Sum,
    constant,
    limited,
    microseconds,
    thousandths,
    wave,
)
from schemas.model import Model

MAX_RATE_PER_SECOND = 10_000_000
MAX_SECONDS = 31_536_000
MAX_PARTS = 100
Rate = Annotated[float, Field(ge=0, le=MAX_RATE_PER_SECOND)]
PositiveRate = Annotated[float, Field(gt=0, le=MAX_RATE_PER_SECOND)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
PositiveSeconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
BurstRecords = Annotated[int, Field(gt=0, le=100_000_000)]
BurstMs = Annotated[int, Field(ge=1, le=60_000)]


class Recurring(NamedTuple):
    """What a load repeats on purpose: kind, `burst` or `rise`; every_s, also the time of the first;
    lasts_s: how long its effect is examined."""

    kind: str
    every_s: float
    lasts_s: float


class BurstSize(NamedTuple):
    """Records within milliseconds."""

    records: int
    within_ms: int


class Shape(Model):
    """Base of all shapes. for_s: its duration as a part of a sequence or sum; 0: without end.

    IS_PERIODIC: the same at any time, apart from its period, so that a warm-up may end at any time.
    HAS_ONE_LEVEL: without bursts and changes made by Tidegauge.
    """

    IS_PERIODIC: ClassVar = False
    HAS_ONE_LEVEL: ClassVar = False

    for_s: Seconds = 0

    @property
    def base_rate_per_second(self) -> float:
        """Its `rate_per_second`; 0 for a shape without one."""
        return float(getattr(self, "rate_per_second", 0))

    @property
    def peak_per_second(self) -> float:
        """The highest rate, bursts included; 0 for a replay, whose peak depends on its data."""
        return self.base_rate_per_second

    @property
    def constant_per_second(self) -> float | None:
        """The rate, if it never changes."""
        return None

    @property
    def cycle_s(self) -> int:
        """Its period in whole seconds, rounded up; 1 without one."""
        return 1

    @property
    def recurring(self) -> Recurring | None:
        """What it repeats on purpose."""
        return None

    @property
    def bursts(self) -> tuple[BurstSize, ...]:
        """Its bursts, one for each size."""
        return ()

    def with_bursts(self, share: float) -> "Shape":  # noqa: ARG002
        """The same with this share of the records of each burst."""
        return self

    def curve(self) -> Integral:
        """Its integral, until for_s if that is given. Raises ValueError for a replay."""
        return limited(self.endless_curve(), self.for_s)

    def endless_curve(self) -> Integral:
        """Its integral without the limit for_s."""
        raise NotImplementedError


class Constant(Shape):
    """`rate_per_second`, evenly spaced."""

    IS_PERIODIC = HAS_ONE_LEVEL = True
    shape: Literal["constant"] = "constant"
    rate_per_second: PositiveRate

    @property
    def constant_per_second(self) -> float | None:
        return None if self.for_s else self.rate_per_second

    def endless_curve(self) -> Integral:
        return constant(thousandths(self.rate_per_second))


class RampUp(Shape):
    """From `from_rate_per_second` to `rate_per_second`, linear over `for_s`, then constant. As a
    part of a sequence it takes `for_s`."""

    shape: Literal["ramp"] = "ramp"
    from_rate_per_second: Rate = 0
    rate_per_second: PositiveRate
    for_s: PositiveSeconds

    @property
    def peak_per_second(self) -> float:
        return max(self.from_rate_per_second, self.rate_per_second)

    def curve(self) -> Integral:
        return self.endless_curve()

    def endless_curve(self) -> Integral:
        start, end = thousandths(self.from_rate_per_second), thousandths(self.rate_per_second)
        return Curve((Ramp(microseconds(self.for_s), start, end),), hold=end)


class Steps(Shape):
    """Each of `rates_per_second` for `step_s`; the last one continues."""

    shape: Literal["steps"] = "steps"
    rates_per_second: tuple[Rate, ...] = Field(min_length=1, max_length=MAX_PARTS)
    step_s: PositiveSeconds

    @field_validator("rates_per_second")
    @classmethod
    def _not_all_zero(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if not any(rates):
            raise ValueError("one of rates_per_second must be above 0")
        return rates

    @property
    def peak_per_second(self) -> float:
        return max(self.rates_per_second)

    def endless_curve(self) -> Integral:
        rates = [thousandths(rate) for rate in self.rates_per_second]
        step_us = microseconds(self.step_s)
        return Curve([Ramp(step_us, rate, rate) for rate in rates], hold=rates[-1])


class Spike(Shape):
    """`rate_per_second`, but `peak_rate_per_second` for `peak_s` from `at_s` on."""

    shape: Literal["spike"] = "spike"
    rate_per_second: PositiveRate
    peak_rate_per_second: PositiveRate
    at_s: Seconds = 0
    peak_s: PositiveSeconds

    @property
    def peak_per_second(self) -> float:
        return max(self.rate_per_second, self.peak_rate_per_second)

    def endless_curve(self) -> Integral:
        rate, peak = thousandths(self.rate_per_second), thousandths(self.peak_rate_per_second)
        before = (Ramp(microseconds(self.at_s), rate, rate),) if self.at_s else ()
        return Curve((*before, Ramp(microseconds(self.peak_s), peak, peak)), hold=rate)


class Sine(Shape):
    """`rate_per_second` ± `amplitude_per_second`, with a period of `period_s`."""

    IS_PERIODIC = True
    shape: Literal["sine"] = "sine"
    rate_per_second: PositiveRate
    amplitude_per_second: PositiveRate
    period_s: PositiveSeconds

    @model_validator(mode="after")
    def _not_below_zero(self) -> "Sine":
        if self.amplitude_per_second > self.rate_per_second:
            raise ValueError("amplitude_per_second must not exceed rate_per_second")
        return self

    @property
    def peak_per_second(self) -> float:
        return self.rate_per_second + self.amplitude_per_second

    @property
    def cycle_s(self) -> int:
        return math.ceil(self.period_s)

    def endless_curve(self) -> Integral:
        mean, height = thousandths(self.rate_per_second), thousandths(self.amplitude_per_second)
        return Curve(wave(self.period_s, mean, height), repeats=True)


class Fluctuating(Shape):
    """High, low, high, low …: `rate_per_second` and `low_rate_per_second` (by default a third of
    it, the proportions of Karimov et al. 2018) for `period_s` each."""

    IS_PERIODIC = True
    shape: Literal["fluctuating"] = "fluctuating"
    rate_per_second: PositiveRate
    low_rate_per_second: Rate | None = None
    period_s: PositiveSeconds

    @property
    def peak_per_second(self) -> float:
        return max(self.rate_per_second, self.low_rate_per_second or 0.0)

    @property
    def cycle_s(self) -> int:
        return math.ceil(2 * self.period_s)

    @property
    def recurring(self) -> Recurring:
        return Recurring("rise", 2 * self.period_s, self.period_s)

    def endless_curve(self) -> Integral:
        high = thousandths(self.rate_per_second)
        given = self.low_rate_per_second
        low = high // 3 if given is None else thousandths(given)
        half_us = microseconds(self.period_s)
        return Curve((Ramp(half_us, high, high), Ramp(half_us, low, low)), repeats=True)


class Bursting(Shape):
    """Base of shapes with bursts on top of `rate_per_second`."""

    rate_per_second: PositiveRate
    burst_records: BurstRecords
    burst_ms: BurstMs = 175

    @property
    def peak_per_second(self) -> float:
        return self.rate_per_second + self.burst_records * 1000 / self.burst_ms

    @property
    def bursts(self) -> tuple[BurstSize, ...]:
        return (BurstSize(self.burst_records, self.burst_ms),)

    def with_bursts(self, share: float) -> Shape:
        records = max(1, round(self.burst_records * share))
        return self.model_copy(update={"burst_records": records})


class SingleBurst(Bursting):
    """`burst_records` within the first `burst_ms`, on top of `rate_per_second`."""

    shape: Literal["single_burst"] = "single_burst"

    def endless_curve(self) -> Integral:
        burst = Curve((Burst(self.burst_ms * 1000, self.burst_records),))
        return Sum((constant(thousandths(self.rate_per_second)), burst))


class PeriodicBurst(Bursting):
    """`burst_records` within `burst_ms` every `period_s`, the first time after `period_s`, on top
    of `rate_per_second`."""

    IS_PERIODIC = True
    shape: Literal["periodic_burst"] = "periodic_burst"
    period_s: PositiveSeconds

    @model_validator(mode="after")
    def _one_after_the_other(self) -> "PeriodicBurst":
        if self.burst_ms > self.period_s * 1000:
            raise ValueError("burst_ms must not be longer than period_s")
        return self

    @property
    def cycle_s(self) -> int:
        return math.ceil(self.period_s)

    @property
    def recurring(self) -> Recurring:
        return Recurring("burst", self.period_s, self.period_s)

    def endless_curve(self) -> Integral:
        period_us, burst_us = microseconds(self.period_s), self.burst_ms * 1000
        pieces: list[Ramp | Burst] = [Burst(burst_us, self.burst_records)]
        if period_us > burst_us:
            pieces.append(Ramp(period_us - burst_us, 0, 0))
        bursts = Chain(((Curve(()), period_us), (Curve(pieces, repeats=True), None)))
        return Sum((constant(thousandths(self.rate_per_second)), bursts))


class Replay(Shape):
    """At the recorded times of the content, `speed` times as fast."""

    HAS_ONE_LEVEL = True
    shape: Literal["replay"] = "replay"
    speed: float = Field(60, ge=0.001, le=1_000_000)

    def endless_curve(self) -> Integral:
        raise ValueError("the shape of a replay needs its recorded times")


class Combined(Shape):
    """Base of shapes with `parts`: any shape except a replay, or a combination of such shapes."""

    parts: tuple["Load", ...] = Field(min_length=1, max_length=MAX_PARTS)

    @field_validator("parts")
    @classmethod
    def _none_is_a_replay(cls, parts: tuple["Load", ...]) -> tuple["Load", ...]:
        if any(isinstance(part, Replay) for part in parts):
            raise ValueError("a replay cannot be part of another load")
        return parts

    @property
    def bursts(self) -> tuple[BurstSize, ...]:
        return tuple(burst for part in self.parts for burst in part.bursts)

    def with_bursts(self, share: float) -> Shape:
        parts = tuple(part.with_bursts(share) for part in self.parts)
        return self.model_copy(update={"parts": parts})


class Sequence(Combined):
    """`parts` one after another, each for its `for_s`; the last one may omit it and then
    continues."""

    shape: Literal["sequence"] = "sequence"

    @model_validator(mode="after")
    def _all_but_the_last_end(self) -> "Sequence":
        if not all(part.for_s for part in self.parts[:-1]):
            raise ValueError("every part of a sequence but the last needs for_s")
        return self

    @property
    def peak_per_second(self) -> float:
        return max(part.peak_per_second for part in self.parts)

    def curve(self) -> Integral:
        return self.endless_curve()

    def endless_curve(self) -> Integral:
        return Chain(
            [
                (part.endless_curve(), microseconds(part.for_s) if part.for_s else None)
                for part in self.parts
            ]
        )


class Together(Combined):
    """`parts` at the same time."""

    shape: Literal["sum"] = "sum"

    @property
    def peak_per_second(self) -> float:
        return sum(part.peak_per_second for part in self.parts)

    def endless_curve(self) -> Integral:
        return Sum([part.curve() for part in self.parts])


def _of_shape(fields: Any) -> Any:
    """The fields without those of other shapes at their defaults, which requests in data folders
    of 0.1.0 have."""
    if not isinstance(fields, dict):
        return fields
    fields = {"shape": "constant"} | fields
    own = _FIELDS.get(str(fields["shape"]), _ALL_FIELDS)
    return {
        name: value
        for name, value in fields.items()
        if name in own or name not in _ALL_FIELDS or (value and value != _DEFAULTS.get(name))
    }


AnyShape = (
    Constant
    | RampUp
    | Steps
    | Spike
    | Sine
    | Fluctuating
    | SingleBurst
    | PeriodicBurst
    | Replay
    | Sequence
    | Together
)
# `shape` may be left out of a constant load.
Load = Annotated[AnyShape, Field(discriminator="shape"), BeforeValidator(_of_shape)]
SHAPES: tuple[type[Shape], ...] = AnyShape.__args__  # type: ignore[attr-defined]
_FIELDS = {kind.model_fields["shape"].default: frozenset(kind.model_fields) for kind in SHAPES}
_ALL_FIELDS = frozenset().union(*_FIELDS.values())
_DEFAULTS = {"burst_ms": 175, "speed": 60}  # others are empty
PERIODIC = tuple(kind.model_fields["shape"].default for kind in SHAPES if kind.IS_PERIODIC)
Combined.model_rebuild()
Sequence.model_rebuild()
Together.model_rebuild()
_LOAD: TypeAdapter[AnyShape] = TypeAdapter(Load)


def load_of(**fields: Any) -> AnyShape:
    """The load with these fields, as in a file. Raises ValidationError."""
    return _LOAD.validate_python(fields)
