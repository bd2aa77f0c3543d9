"""Where a click on a run leads. Fields of the row fill the run and its range of time."""

from typing import Final

TO_RUN: Final = (
    "/d/tidegauge-run?var-run=${__data.fields.run}&from=${__data.fields.from_ms}"
    "&to=${__data.fields.to_ms}&${datasource:queryparam}"
)
