"""Write every dashboard and the alerts: python -m deploy.grafana.program

`python -m deploy.grafana.program contact-points FILE` writes the alerts with contact points for
the webhooks of the settings, in place of the file of alerts.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.program import (
    alerts,
    compare,
    correctness,
    history,
    live,
    one_run,
    overview,
    resources,
    stages,
    sustainable,
    watch,
)
from deploy.grafana.program.alerts import with_contact_points
from services.runtime.settings import load_settings
from services.runtime.webhooks import WebhookSettings

GRAFANA: Final = Path(__file__).parents[1]
DASHBOARDS: Final = GRAFANA / "dashboards"
FOLDER: Final = "Tidegauge"
ALERTS: Final = GRAFANA / "provisioning" / "alerting" / "tidegauge.json"
BUILDERS: Final = (
    overview.build,
    live.build,
    watch.build,
    stages.build,
    compare.build,
    sustainable.build,
    correctness.build,
    resources.build,
    history.build,
    one_run.build,
)


def files() -> Iterator[tuple[Path, str]]:
    """(path, text) of every file; deterministic."""
    panels: dict[tuple[str, str], int] = {}
    for build in BUILDERS:
        model = as_model(build().build())
        panels |= {(model["uid"], panel["title"]): panel["id"] for panel in model["panels"]}
        name = model["uid"].removeprefix("tidegauge-")
        yield DASHBOARDS / FOLDER / f"{name}.json", _text(model)
    yield ALERTS, _text(alerts.provisioning(panels))


def as_model(dashboard: Dashboard) -> dict[str, Any]:
    """The JSON of a dashboard, without the SDK's defaults that move links and annotations into a
    menu: they should be visible."""
    for number, panel in enumerate(dashboard.panels or [], start=1):
        panel.id_val = number
    plain: dict[str, Any] = json.loads(JSONEncoder().encode(dashboard))
    for each in (*plain["annotations"]["list"], *plain["links"]):
        each.pop("placement", None)
    return plain


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write_contact_points(path: Path) -> None:
    """Write the alerts with contact points for the webhooks of the settings."""
    provisioned = json.loads(ALERTS.read_text())
    result = with_contact_points(provisioned, load_settings(WebhookSettings).webhooks)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(result))


def main(arguments: list[str]) -> int:
    """Write the files, and remove those of deleted dashboards."""
    if arguments[:1] == ["contact-points"]:
        write_contact_points(Path(arguments[1]))
        return 0
    written = dict(files())
    for path in DASHBOARDS.rglob("*.json"):
        if path not in written:
            path.unlink()
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
