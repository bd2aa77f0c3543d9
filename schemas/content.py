"""The content of a workload: what the records say, of which sites, in which format."""

from typing import Literal

from pydantic import Field, model_validator

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
NEEDED_FIELDS = (
    "measurement_id",
    "observed_at",
    "flow_vehicles_per_hour",
    "speed_km_per_hour",
)


class Keys(Model):
    """How the records of a second spread over sites (and so over keys and partitions).

    data: every site with its own number of lanes, as many copies of the sites as the rate needs.
    uniform, normal, zipf: `sites` sites get lanes in proportion to the weight of their number i
    (from 1): the same; a normal density around the middle with a standard deviation of `spread`
    times `sites`; 1 / i ** `exponent`. single: one site has all lanes.

    Skew is a skew of the number of lanes: a site that gets a hundred times the records reports a
    hundred times the lanes. So every window is complete and every output has one right value,
    whatever the distribution.
    """

    distribution: Literal["data", "uniform", "normal", "zipf", "single"] = "data"
    sites: int = Field(1000, ge=1, le=1_000_000)
    exponent: float = Field(1.0, gt=0, le=10)
    spread: float = Field(0.15, gt=0, le=10)


class Content(Model):
    """What the records say.

    source: `ndw`, the recorded sample, or `file`, a CSV or Parquet of the user's own at `path`;
    columns: the file's column for each of our fields that is named differently there. One
    observation per lane becomes one second of event time; `second_ms` is how long such a second
    lasts (temporal scaling: below 1000, event time runs ahead of the clock).
    lanes_per_site: instead of the lanes that the data have. copies: spatial scaling of a replay,
    each recorded site this many times; otherwise the rate says how many sites there are.
    format: `avro` (single-object encoding) or `json` (UTF-8, no marker: schemas/json_format.py).
    """

    source: Literal["ndw", "file"] = "ndw"
    path: str = ""
    columns: dict[str, str] = Field(default_factory=dict)
    format: Literal["avro", "json"] = "avro"
    second_ms: int = Field(1000, ge=10, le=3_600_000)
    lanes_per_site: int | None = Field(None, ge=1, le=100_000)
    copies: int = Field(1, ge=1, le=100_000)
    keys: Keys = Keys()

    @model_validator(mode="after")
    def _whole(self) -> "Content":
        if (self.source == "file") != bool(self.path):
            raise ValueError("path and source = 'file' belong together")
        unknown = sorted(set(self.columns) - set(FIELDS))
        if unknown:
            allowed = ", ".join(FIELDS)
            raise ValueError(f"columns names {unknown[0]!r}; fields are: {allowed}")
        if self.lanes_per_site and self.keys.distribution != "data":
            raise ValueError("lanes_per_site and a key distribution exclude each other")
        return self
