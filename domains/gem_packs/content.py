"""Options of a workload's [content] for this domain."""

from typing import Literal

from pydantic import ConfigDict, Field

from schemas import content

MAX_GEOS = 100  # rows of countries.csv


class Content(content.DrawnContent):
    """Purchases and ads, drawn from the seed; or recorded ones, to which the options below do not
    apply.

    users, packs, geos: their numbers. distribution: of the gem packs, which are the keys: normal,
    around the middle one with a standard deviation of 0.15 times `packs`; uniform; zipf, in
    proportion to 1 / number; single, always the first. Users are drawn uniformly; a user has one
    geo. match: share of the purchases that match the ad of their own pair: same user and gem pack.
    """

    model_config = ConfigDict(extra="forbid")

    users: int = Field(1_000, ge=1, le=10_000_000)
    packs: int = Field(100, ge=1, le=1_000_000)
    geos: int = Field(MAX_GEOS, ge=1, le=MAX_GEOS)
    distribution: Literal["normal", "uniform", "zipf", "single"] = "normal"
    match: float = Field(0.5, ge=0, le=1)
