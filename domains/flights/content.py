"""Options of a workload's [content] for this domain."""

from typing import Literal

from pydantic import ConfigDict, Field

from schemas import content

UNLISTED = "ZZZZ"  # ICAO's code for an aerodrome without a code


class Content(content.DrawnContent):
    """Aircraft that each fly between two airports, drawn from the seed (records.py); or recorded
    states (recording.py), to which the options below do not apply.

    aircraft: their number; they report in turn, so each reports every `aircraft / rate` seconds.
    region: of their airports. time_factor: seconds of flight per second of event time. emergencies:
    share of the flights with the transponder code 7700. unlisted: share of the flights that depart
    from an airport missing in the table.
    """

    model_config = ConfigDict(extra="forbid")

    aircraft: int = Field(2_000, ge=1, le=500_000)
    region: Literal["europe", "world"] = "europe"
    time_factor: float = Field(60, gt=0, le=3_600)
    emergencies: float = Field(0.02, ge=0, le=1)
    unlisted: float = Field(0.05, ge=0, le=1)
