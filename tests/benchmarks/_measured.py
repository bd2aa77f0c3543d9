"""What a benchmark returns."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measured:
    """figures: values by name, the unit last. ratios: ours against a peer's in the same run, above
    1 where ours is better."""

    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
