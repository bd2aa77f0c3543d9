"""Transport of records through the gateway, from ClickHouse."""

import json
from typing import Any

from services.runtime.clickhouse import query

_EVENT = (
    "SELECT detail FROM tidegauge.results_lifecycle"
    " WHERE run_id = {run_id:String} AND event = 'way_in' ORDER BY time DESC LIMIT 1"
)


def way_in_of(url: str, run_id: str) -> dict[str, Any] | None:
    """Outcome of the frames of a run, in all phases; None if records were sent directly to
    Kafka."""
    rows = query(url, _EVENT, run_id=run_id)
    found: dict[str, Any] | None = json.loads(rows[0]["detail"]) if rows else None
    return found


def way_in_sentences(report: dict[str, Any]) -> list[str]:
    """`By udp: 40000 frames sent, 39960 appended, 40 lost (0.10%); …`; none if records were sent
    directly to Kafka."""
    way_in = report.get("way_in")
    if not way_in:
        return []
    sent, lost = way_in["sent"], way_in["lost"]
    share = f" ({lost / sent:.2%})" if lost and sent else ""
    text = (
        f"By {way_in['transport']}: {sent} frames sent, {way_in['appended']} appended,"
        f" {lost} lost{share}"
    )
    for name in ("not_appended", "duplicates", "refused", "turned_away"):
        if way_in[name]:
            text += f", {way_in[name]} {name.replace('_', ' ')}"
    transit, append = way_in["transit_us"], way_in["append_ms"]
    if transit["p50"] is not None:
        text += f"; to the gateway p50 {transit['p50']} and p99 {transit['p99']} µs"
    if append["p50"] is not None:
        text += f", from there into Kafka p50 {append['p50']} and p99 {append['p99']} ms"
    return [text + "."]
