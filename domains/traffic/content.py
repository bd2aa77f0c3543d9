"""Options of a workload's [content] for this domain."""

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from schemas import content
from schemas.model import Model

FIELDS = (
    "measurement_id",
    "lane",
    "latitude",
    "longitude",
    "observed_at",
    "period_s",
    "accuracy_percent",
    "flow_vehicles_per_hour",
    "speed_km_per_hour",
)


class Keys(Model):
    """Distribution of the records of a second over sites, and so over keys and partitions.

    data: every site with its own number of lanes, with as many copies of the sites as the rate
    needs. uniform, normal, zipf: `sites` sites get lanes in proportion to a weight, which for site
    number i (from 1) is: constant; a normal density around the middle with a standard deviation of
    `spread` times `sites`; 1 / i ** `exponent`. single: one site has all lanes.

    Skew is a skew of the number of lanes: a site with a hundred times the records has a hundred
    times the lanes. Every window is therefore complete and every output has exactly one correct
    value, for every distribution.
    """

    distribution: Literal["data", "uniform", "normal", "zipf", "single"] = "data"
    sites: int = Field(1000, ge=1, le=1_000_000)
    exponent: float = Field(1.0, gt=0, le=10)
    spread: float = Field(0.15, gt=0, le=10)


class Content(content.Content):
    """Observations of a recording, each of which becomes one second of event time.

    source: `ndw` is the recorded sample, and so is `domain`. lanes_per_site: replaces the lanes of
    the data. Without a replay the rate determines the number of sites.
    """

    model_config = ConfigDict(extra="forbid")

    source: Literal["domain", "ndw", "file"] = "domain"
    lanes_per_site: int | None = Field(None, ge=1, le=100_000)
    keys: Keys = Keys()

    @model_validator(mode="after")
    def _makes_sense(self) -> "Content":
        unknown = sorted(set(self.columns) - set(FIELDS))
        if unknown:
            allowed = ", ".join(FIELDS)
            raise ValueError(f"columns names {unknown[0]!r}; fields are: {allowed}")
        if self.lanes_per_site and self.keys.distribution != "data":
            raise ValueError("lanes_per_site and a key distribution exclude each other")
        return self
