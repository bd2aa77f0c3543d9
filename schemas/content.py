"""The content of a workload: the data of its records, and their format."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from schemas.model import Model

OWN_SOURCE = "domain"
TimeUnit = Literal["s", "ms", "us", "ns"]


class Content(Model):
    """The data of the records. Further options belong to the domain, which validates them
    (`services.definitions.domains.content_of`).

    source: `domain`, the domain's own data; `file`, a CSV or Parquet at `path`; or another name
    that the domain defines. columns: the file's column for each field with another name there.
    time_unit: of times in the file that are numbers since 1970; empty: milliseconds, from 1973 on.
    second_ms: duration of a second of event time (temporal scaling: below 1000, event time runs
    faster than the clock). copies: spatial scaling of a replay: number of copies of each recorded
    key. format: `avro` (single-object encoding) or `json` (UTF-8, no marker:
    schemas/json_format.py).
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any]

    source: str = Field(OWN_SOURCE, pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    path: str = ""
    columns: dict[str, str] = Field(default_factory=dict)
    format: Literal["avro", "json"] = "avro"
    second_ms: int = Field(1000, ge=10, le=3_600_000)
    time_unit: TimeUnit | Literal[""] = ""
    copies: int = Field(1, ge=1, le=100_000)

    @model_validator(mode="after")
    def _names_its_file(self) -> "Content":
        if (self.source == "file") != bool(self.path):
            raise ValueError("path and source = 'file' must be given together")
        return self


class DrawnContent(Content):
    """Data that a domain draws from the seed of a run, without files."""

    source: Literal["domain"] = "domain"

    @model_validator(mode="after")
    def _has_no_columns(self) -> "DrawnContent":
        for name in ("columns", "time_unit"):
            if getattr(self, name):
                raise ValueError(f"{name} applies only to a file, and this domain reads none")
        return self
