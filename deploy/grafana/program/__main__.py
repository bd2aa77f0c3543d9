"""Write every dashboard: python -m deploy.grafana.program"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.program import compare, correctness, live, one_run, resources, stages

DASHBOARDS: Final = Path(__file__).parents[1] / "dashboards"
FOLDER: Final = "Tidegauge"
BUILDERS: Final = (
    live.build,
    stages.build,
    compare.build,
    correctness.build,
    resources.build,
    one_run.build,
)


def files() -> Iterator[tuple[Path, str]]:
    """(path, text) of every dashboard file; the same program writes the same text."""
    for build in BUILDERS:
        found = build().build()
        for number, panel in enumerate(found.panels or [], start=1):
            panel.id_val = number
        name = str(found.uid).removeprefix("tidegauge-")
        text = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False).encode(found)
        yield DASHBOARDS / FOLDER / f"{name}.json", text + "\n"


def main() -> int:
    """Write the files, and remove those of dashboards that are no more."""
    written = dict(files())
    for path in (DASHBOARDS / FOLDER).glob("*.json"):
        if path not in written:
            path.unlink()
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
