"""Links from a run. Fields of the row set the run and its time range."""

from typing import Final

TO_RUN: Final = (
    "/d/tidegauge-run?var-run=${__data.fields.run}&from=${__data.fields.from_ms}"
    "&to=${__data.fields.to_ms}&${datasource:queryparam}"
)
